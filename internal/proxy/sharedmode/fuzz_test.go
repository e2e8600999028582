package sharedmode

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// FuzzRequestsOfOthersAreRefused checks that no request is let through in which another's repository is where Argo CD
// would look for one, however it is put.
func FuzzRequestsOfOthersAreRefused(f *testing.F) {
	f.Add(field(1, repository(ours)), theirs)
	f.Add(append(field(1, repository(ours)), field(10, words(1, ours))...), theirs)
	f.Add([]byte{0x0a, 0x00}, "file:///x")
	rules := &Rules{
		Repository: func(address string) error {
			if address != ours {
				return errors.New("not ours")
			}
			return nil
		},
		Same:        func(a, b string) bool { return a == b },
		Application: func(context.Context, string) (map[string]bool, error) { return nil, nil },
	}
	f.Fuzz(func(t *testing.T, request []byte, address string) {
		if address == ours || !each(request, path{1 << 20}, func([]byte) {}) { // what is cut off would swallow what follows
			return
		}
		for name, m := range methods {
			_ = rules.check(t.Context(), m, request) // does not panic
			if _, _, err := apart("w1", m, request); err != nil {
				continue
			}
			for _, bad := range [][]byte{field(1, repository(address)), field(1, words(19, "http://evil")), field(1, words(18, "http://evil")), field(1, words(21, "{}")), field(1, number(24, 1)),
				field(1, number(7, 1)), field(1, words(23, "*")), field(1, words(12, "--repository-config=/x"))} {
				if rules.check(t.Context(), m, append(slices.Clip(request), bad...)) == nil {
					t.Errorf("%s: %q with %q is let through", name, request, bad)
				}
			}
		}
	})
}

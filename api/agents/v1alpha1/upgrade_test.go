package v1alpha1

import (
	"strings"
	"testing"
)

func TestUpgrade_PartsOfImages(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a0", 32)
	for _, tc := range []struct {
		name  string
		is    func(string) bool
		valid []string
		wrong []string
	}{
		{"tag", IsImageTag, []string{"v0.3.0", "0.3.0", "_x"}, []string{"", "-x", "a:b", "a b", "a/b", "a\n", strings.Repeat("a", 129)}},
		{"digest", IsImageDigest, []string{digest}, []string{"", digest + "0", strings.ToUpper(digest), "sha512:" + digest[7:], digest + "\n"}},
		{"repository", IsImageRepository, []string{"quay.io/x/agent", "registry:5000/agent", "agent"}, []string{"", "agent:v1", "registry:5000/agent:v1", "a@" + digest, "-a", "a b", "a\n", strings.Repeat("a", 256)}},
	} {
		for _, s := range tc.valid {
			if !tc.is(s) {
				t.Errorf("%s %q is not valid", tc.name, s)
			}
		}
		for _, s := range tc.wrong {
			if tc.is(s) {
				t.Errorf("%s %q is valid", tc.name, s)
			}
		}
	}
	if !SameVersion("v1.2.3", "1.2.3") || SameVersion("v1.2.3", "v1.2.4") {
		t.Error("versions are compared with their prefix")
	}
}

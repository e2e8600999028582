package redis

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReplyReader_ReadsEveryType(t *testing.T) {
	replies := []string{
		"+OK\r\n", "-ERR no\r\n", ":42\r\n", "$-1\r\n", "$0\r\n\r\n", "$5\r\na\r\nbc\r\n", "*0\r\n", "*-1\r\n",
		"*2\r\n$1\r\na\r\n*2\r\n:1\r\n_\r\n", "%1\r\n+k\r\n*1\r\n#t\r\n", "~2\r\n,1.5\r\n(123\r\n", "=7\r\ntxt:abc\r\n",
		"|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n", ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n", "!3\r\nbad\r\n",
	}
	all := strings.Join(replies, "")
	for name, from := range map[string]io.Reader{
		"at once":      strings.NewReader(all),
		"byte by byte": iotest.OneByteReader(strings.NewReader(all)),
	} {
		r := newReplyReader(from, testLimits)
		for _, want := range replies {
			got, err := r.next()
			if err != nil || string(got) != want {
				t.Fatalf("%s: got %q, %v; want %q", name, got, err, want)
			}
		}
		if _, err := r.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v at the end", name, err)
		}
	}
}

func TestReplyReader_Limits(t *testing.T) {
	narrow := limits{bulk: 10, elements: 4, total: 100}
	for _, bytes := range []string{
		"$11\r\n", "*5\r\n", "*3\r\n*3\r\n", "%3\r\n", "$-2\r\n", "?\r\n", "$abc\r\n", "*2\r\n$3\r\nabcd\r\n", "$?\r\n", "*?\r\n",
	} {
		if got, err := newReplyReader(strings.NewReader(bytes), narrow).next(); !errors.Is(err, errProtocol) {
			t.Errorf("%q: %q, %v", bytes, got, err)
		}
	}
}

func TestParseKey_Forms(t *testing.T) {
	for text, want := range map[string]appKey{
		"app|resources-tree|ns_a|1.8.3":          {ResourcesTree, "ns_a", "1.8.3", false, "1.8.3"},
		"app|resources-tree|a|1.8.3.gz":          {ResourcesTree, "a", "1.8.3", true, "1.8.3"},
		"app|resources-tree|ns_a|12|1.8.3.gz":    {ResourcesTree, "ns_a", "12|1.8.3", true, "1.8.3"},
		"app|managed-resources|ns_a.b|2.0":       {ManagedResources, "ns_a.b", "2.0", false, "2.0"},
		"app|managed-resources|ns_a|1|1.8.3":     {},
		"app|resources-tree|ns_a|x|1.8.3":        {},
		"app|resources-tree|ns_a|1|2|1.8.3":      {},
		"app|resources-tree||1.8.3":              {},
		"app|resources-tree|ns_a":                {},
		"app|resources-tree|ns_a|":               {},
		"app|resources-tree|ns_a|.gz":            {},
		"app|other|ns_a|1.8.3":                   {},
		"apps|resources-tree|ns_a|1.8.3":         {},
		"mfst|annotation:app|x|1.8.3":            {},
		"cluster|info|https://example:1|1.8.3":   {},
		"app|resources-tree|ns_a|1.8.3\r\nFLUSH": {ResourcesTree, "ns_a", "1.8.3\r\nFLUSH", false, "1.8.3\r\nFLUSH"},
	} {
		got, ok := parseKey([]byte(text))
		if got != want || ok != (want != appKey{}) {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
}

// FuzzReader checks that no input panics, and that the result does not depend on how the input is split.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "PING\r\n", "*1\r\n$4\r\nPING\r\n*1\r\n$", "+OK\r\n:1\r\n$2\r\nab\r\n",
		"%1\r\n+a\r\n|1\r\n+b\r\n:1\r\n_\r\n", "*-1\r\n", "$-1\r\n", ">2\r\n+a\r\n+b\r\n", "*1048577\r\n", "$99999999999999999999\r\n",
	} {
		f.Add([]byte(seed))
	}
	bound := limits{bulk: 1 << 16, elements: 1 << 10, total: 1 << 18}
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func(from io.Reader) (out []byte, failed bool) {
			r := newReplyReader(from, bound)
			for {
				reply, err := r.next()
				if err != nil {
					return out, errors.Is(err, errProtocol)
				}
				out = append(out, reply...)
				_, _ = decode(reply)
				_ = readMessage(reply)
			}
		}
		whole, bad := read(bytes.NewReader(data))
		pieces, alsoBad := read(iotest.OneByteReader(bytes.NewReader(data)))
		if !bytes.Equal(whole, pieces) || bad != alsoBad || !bytes.HasPrefix(data, whole) {
			t.Errorf("%q: %q, %v; in pieces %q, %v", data, whole, bad, pieces, alsoBad)
		}
		requests := func(from io.Reader) (out []byte) {
			for r := newCommandReader(from, bound); ; {
				c, err := r.next()
				if err != nil {
					return out
				}
				raw := appendCommand(nil, c...)
				if !bytes.Contains(data, raw) || !bytes.Equal(r.raw, raw) {
					t.Fatalf("%q: request is %q, received as %q", data, raw, r.raw)
				}
				_ = permit(c)
				out = append(out, raw...)
			}
		}
		if whole, pieces := requests(bytes.NewReader(data)), requests(iotest.OneByteReader(bytes.NewReader(data))); !bytes.Equal(whole, pieces) {
			t.Errorf("%q: requests are %q, in pieces %q", data, whole, pieces)
		}
		_, _ = parseKey(data)
	})
}

func TestCommandReader_RejectsLengthsThatRedisRejects(t *testing.T) {
	for _, raw := range []string{"*02\r\n$3\r\nGET\r\n$1\r\nk\r\n", "*2\r\n$03\r\nGET\r\n$1\r\nk\r\n", "*2\r\n$3\r\nGET\r\n$-0\r\n\r\n", "*-0\r\n", "*+1\r\n$4\r\nPING\r\n", "* 1\r\n$4\r\nPING\r\n"} {
		if c, err := newCommandReader(strings.NewReader(raw), testLimits).next(); !errors.Is(err, errProtocol) {
			t.Errorf("%q was read as %q, %v", raw, c, err)
		}
	}
	if c, err := newCommandReader(strings.NewReader("*2\r\n$3\r\nGET\r\n$0\r\n\r\n"), testLimits).next(); err != nil || len(c) != 2 {
		t.Errorf("an empty key: %q, %v", c, err)
	}
}

// A client that waits must not keep the memory of its last request.
func TestCommandReader_ReleasesLargeRequests(t *testing.T) {
	large := appendCommand(nil, "SET", "k", strings.Repeat("x", 2*keepBuffer))
	many := appendCommand(nil, slices.Repeat([]string{"k"}, 2*keepArguments)...)
	for name, raw := range map[string][]byte{"large": large, "many": many} {
		var r *commandReader
		from := bytes.NewReader(raw)
		r = newCommandReader(readFunc(func(b []byte) (int, error) {
			if from.Len() == 0 && (cap(r.raw) > keepBuffer || cap(r.args) > keepArguments) {
				t.Errorf("%s: %d bytes and %d arguments are kept", name, cap(r.raw), cap(r.args))
			}
			return from.Read(b)
		}), testLimits)
		if _, err := r.next(); err != nil || !bytes.Equal(r.raw, raw) {
			t.Errorf("%s: received %d of %d bytes, %v", name, len(r.raw), len(raw), err)
		}
		if _, err := r.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v at the end", name, err)
		}
	}
}

func TestCommandReader_AllocatesNothingForSmallRequests(t *testing.T) {
	raw := appendCommand(nil, "SET", "k", "v")
	from := bytes.NewReader(nil)
	r := newCommandReader(from, testLimits)
	if n := testing.AllocsPerRun(100, func() {
		from.Reset(raw)
		if _, err := r.next(); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

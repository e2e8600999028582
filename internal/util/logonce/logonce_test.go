package logonce

import "testing"

func TestLast_ReportsAMessageOncePerKey(t *testing.T) {
	var l Last[string]
	for i, tc := range []struct {
		key, message string
		want         bool
	}{
		{"a", "x", true}, {"a", "x", false}, {"b", "x", true}, {"a", "y", true}, {"a", "x", true}, {"c", "", true}, {"c", "", false},
	} {
		if got := l.Changed(tc.key, tc.message); got != tc.want {
			t.Errorf("%d: Changed(%q, %q) = %v", i, tc.key, tc.message, got)
		}
	}
	if got := l.Get("a"); got != "x" {
		t.Errorf("Get = %q", got)
	}
	if !l.Reset("a") || l.Reset("a") {
		t.Error("Reset reports whether there was a message")
	}
	if !l.Changed("a", "x") {
		t.Error("a message is not reported after Reset")
	}
}

func TestLast_IsBounded(t *testing.T) {
	var l Last[int]
	for i := range 3 * maxKeys {
		l.Changed(i, "x")
		if len(l.last) > maxKeys {
			t.Fatalf("%d messages are remembered", len(l.last))
		}
	}
}

func TestOne_ReportsChangesOnly(t *testing.T) {
	var o One
	if !o.Changed("x") || o.Changed("x") || o.Get() != "x" || !o.Reset() || o.Reset() || !o.Changed("x") {
		t.Error("a message is reported at other times than at its first occurrence")
	}
}

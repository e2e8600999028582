package text

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTruncate_KeepsValidUTF8WithinTheLimit(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", ""},
		{"12345678", "12345678"},
		{"123456789", "12345..."},
		{"1234é6789", "1234..."}, // the limit is inside é
		{"a\xffb", "a\uFFFDb"},
	} {
		if got := Truncate(tc.in, 8); got != tc.want || !utf8.ValidString(got) {
			t.Errorf("Truncate(%q) = %q, want %q", tc.in, got, tc.want)
		}
	}
	if got := Truncate(strings.Repeat("x", 1000), 100); len(got) != 100 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestWithoutDigits_IgnoresPortsAndTimes(t *testing.T) {
	if WithoutDigits("dial 10.0.0.1:4711: refused") != WithoutDigits("dial 10.0.0.1:4712: refused") {
		t.Error("a port makes a difference")
	}
	if WithoutDigits("refused") == WithoutDigits("timed out") {
		t.Error("another reason makes no difference")
	}
}

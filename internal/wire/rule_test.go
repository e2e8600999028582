package wire

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSanitizeText_MakesAnyTextValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOfN(rapid.Byte(), 0, 2*MaxText).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "runes") {
			s = rapid.StringN(0, MaxText, 2*MaxText).Draw(t, "text")
		}
		got := sanitizeText(s)
		if reason := messageText.violation([]byte(got)); reason != "" {
			t.Fatalf("%q became %q, which %s", s, got, reason)
		}
		if isText([]byte(s)) && len(s) <= MaxText && got != s {
			t.Fatalf("%q became %q for no reason", s, got)
		}
	})
}

func TestSanitizeText_MarksATruncatedText(t *testing.T) {
	got := sanitizeText(strings.Repeat("ä", MaxText))
	if len(got) > MaxText || len(got) < MaxText-8 || !strings.HasSuffix(got, "ä...") {
		t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-8:])
	}
}

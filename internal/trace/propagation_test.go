package trace

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestPropagation_OnlyIDs(t *testing.T) {
	for what, c := range map[string]struct {
		header http.Header
		want   string
	}{
		"nothing":           {http.Header{}, ""},
		"a trace":           {http.Header{"Traceparent": {valid}, "Tracestate": {"vendor=secret"}, "Baggage": {"user=me"}}, valid},
		"not looked at":     {http.Header{"Traceparent": {valid[:53] + "00"}}, valid[:53] + "00"},
		"of the future":     {http.Header{"Traceparent": {"01" + valid[2:] + "-more"}}, valid},
		"without a number":  {http.Header{"Traceparent": {"00-00000000000000000000000000000000-b7ad6b7169203331-01"}}, ""},
		"two":               {http.Header{"Traceparent": {valid, valid}}, ""},
		"something else":    {http.Header{"Traceparent": {"hello"}}, ""},
		"with an addition":  {http.Header{"Traceparent": {valid + "-x"}}, ""},
		"very long":         {http.Header{"Traceparent": {"01" + valid[2:] + "-" + strings.Repeat("x", 60_000)}}, ""},
		"free text alone":   {http.Header{"Tracestate": {"vendor=secret"}, "Baggage": {"user=me"}}, ""},
		"in capital digits": {http.Header{"Traceparent": {strings.ToUpper(valid)}}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			SanitizeHeaders(c.header)
			if got := c.header.Get("traceparent"); got != c.want {
				t.Errorf("%q rather than %q", got, c.want)
			}
			if left := slices.Collect(maps.Keys(c.header)); c.want == "" && len(left) > 0 || len(left) > 1 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func FuzzTidy(f *testing.F) {
	f.Add(valid)
	f.Add("ff" + valid[2:])
	f.Fuzz(func(t *testing.T, text string) {
		header := http.Header{"Traceparent": {text}}
		SanitizeHeaders(header)
		got := header.Get("Traceparent")
		if got != "" && (len(got) != len(valid) || canonical(got) != got) {
			t.Errorf("%q became %q", text, got)
		}
	})
}

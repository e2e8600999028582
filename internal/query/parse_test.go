package query

import (
	"errors"
	"strings"
	"testing"
)

func TestParse_NamesPositionAndWhatIsAllowed(t *testing.T) {
	for _, test := range []struct {
		query    string
		position int
		message  string
	}{
		{"imag=x", 1, `unknown field "imag": use one of agent, namespace,`},
		{"health=Healthy colour=red", 16, `unknown field "colour"`},
		{"=x", 1, `unknown field ""`},
		{"label.=x", 1, `unknown field "label."`},
		{"health>1h", 7, "health cannot be compared with >: use =, !=, ~ or !~"},
		{"freshness=1h", 10, "freshness is a time span: use freshness>1h or freshness<10m"},
		{"changed<soon", 9, `"soon" is not a time span: use for example changed>90s`},
		{"changed<-1h", 9, "not a time span"},
		{"changed<99999999d", 9, "not a time span"},
		{`name="a`, 6, "the closing quote is missing"},
		{`name="a"b`, 9, "a space is missing"},
		{`name=a"b"`, 7, "a quote must be at the start of a value"},
		{`""`, 1, "the text is empty"},
		{"name=\x00", 6, "control characters"},
		{"name=\xff", 6, "invalid UTF-8"},
		{strings.Repeat("a ", maxTerms) + "b", 2*maxTerms + 1, "at most 32 terms"},
		{"name=" + strings.Repeat("a,", maxValues) + "b", 6 + 2*maxValues, "at most 64 values"},
		{strings.Repeat("a", MaxQuery+1), MaxQuery + 1, "at most 4096 bytes"},
	} {
		_, err := Parse(test.query)
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Position != test.position || !strings.Contains(e.Message, test.message) {
			t.Errorf("%.40q: %v, want position %d: %s", test.query, err, test.position, test.message)
		}
	}
}

func TestQuery_KnowsExactValuesAndTime(t *testing.T) {
	for _, test := range []struct {
		query     string
		exact     string // of agent
		restricts bool
		usesTime  bool
	}{
		{"agent=a,b health=Healthy", "a b", true, false},
		{"agent!=a", "", false, false},
		{"agent~a", "", false, false},
		{"freshness>1h", "", false, true},
		{"changed<7d agent=a", "a", true, true},
		{"", "", false, false},
	} {
		q := mustParse(t, test.query)
		values, restricts := q.Exact("agent")
		if strings.Join(values, " ") != test.exact || restricts != test.restricts || q.UsesTime() != test.usesTime {
			t.Errorf("%q: %q, %t, uses time %t", test.query, values, restricts, q.UsesTime())
		}
	}
}

func mustParse(t testing.TB, text string) Query {
	t.Helper()
	q, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// FuzzParse checks that no query stops the program, that errors point into the query, and that a caller without rights
// sees nothing with any query.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "health!=Healthy image~nginx:1.2* agent=a", `label.team="a b",c free`, "freshness>1h changed<10m", `"a\"b\\"`, "revision!=abc1234", "a~*,**"} {
		f.Add(seed)
	}
	m := example()
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Parse(text)
		if err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || e.Position < 1 || e.Position > len(text)+1 || e.Message == "" {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		s := m.Snapshot()
		page, err := s.List(Request{Query: q, Limit: 10}, nothing, exampleClock)
		if err != nil || page.Total != 0 || len(page.Items) != 0 {
			t.Fatalf("%q without rights: %+v, %v", text, page, err)
		}
		all, err := s.List(Request{Query: q, Limit: 10}, everything, exampleClock)
		counts, countErr := s.Count(q, "agent", 10, everything, exampleClock)
		if err != nil || countErr != nil || all.Total != counts.Total || all.Total != len(all.Items) {
			t.Fatalf("%q: list has %d of %d, count %d, %v, %v", text, len(all.Items), all.Total, counts.Total, err, countErr)
		}
	})
}

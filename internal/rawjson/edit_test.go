package rawjson

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestGet_ByPath(t *testing.T) {
	doc := []byte(` {"a" : {"b" : [1, 2 ], "c\u0022":"x", "n":null}, "t": "\u00e9", "a2":{} } `)
	for _, c := range []struct{ path, want string }{
		{"a/b", "[1, 2 ]"}, {"a/c\"", `"x"`}, {"a/n", "null"}, {"t", `"\u00e9"`}, {"a2", "{}"}, {"a/x", ""}, {"a/b/c", ""}, {"x/y", ""},
	} {
		if got := Get(doc, strings.Split(c.path, "/")...); string(got) != c.want {
			t.Errorf("%s is %q, want %q", c.path, got, c.want)
		}
	}
	if Text(doc, "t") != "é" || Text(doc, "a") != "" {
		t.Error("text is not decoded")
	}
}

func TestEdit_KeepsOtherBytes(t *testing.T) {
	doc := `{"z": [ 1.0,  2 ],"a":{"x":"\u0041","y":1e2 },"n":null}`
	for _, c := range []struct {
		name, want string
		edit       func([]byte) ([]byte, error)
	}{
		{"replace in place", `{"z":[ 1.0,  2 ],"a":{"x":7,"y":1e2},"n":null}`, func(b []byte) ([]byte, error) { return Set(b, []byte("7"), "a", "x") }},
		{"append", `{"z":[ 1.0,  2 ],"a":{"x":"\u0041","y":1e2,"q":7},"n":null}`, func(b []byte) ([]byte, error) { return Set(b, []byte("7"), "a", "q") }},
		{"create parents", `{"z":[ 1.0,  2 ],"a":{"x":"\u0041","y":1e2 },"n":{"p":{"q":7}}}`, func(b []byte) ([]byte, error) { return Set(b, []byte("7"), "n", "p", "q") }},
		{"remove", `{"z":[ 1.0,  2 ],"a":{"y":1e2},"n":null}`, func(b []byte) ([]byte, error) { return Remove(b, "a", "x") }},
		{"remove nothing", doc, func(b []byte) ([]byte, error) { return Remove(b, "a", "nothing") }},
	} {
		if got, err := c.edit([]byte(doc)); err != nil || string(got) != c.want {
			t.Errorf("%s: %s (%v), want %s", c.name, got, err, c.want)
		}
	}
	if got, err := Set([]byte(doc), []byte("7"), "z", "x"); err == nil {
		t.Errorf("an array took a member: %s", got)
	}
}

func TestQuote_RoundTrips(t *testing.T) {
	for _, s := range []string{"", "plain", "a\"b\\c/d", "\x00\x1f\n\r\t\b\f", "é😀\u2028<>&", strings.Repeat("x\n", 1000)} {
		if got, ok := String(Quote(s)); !ok || got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
	if got, _ := String(Quote("a\xffb")); got != "a\ufffdb" {
		t.Errorf("what is not UTF-8 became %q", got)
	}
	for _, bad := range []string{``, `"`, `x`, `"a"b"`, `"\q"`, `"a\"`, `"\u00"`, `"\n` + "\n" + `"`} {
		if s, ok := String([]byte(bad)); ok {
			t.Errorf("%s was read as %q", bad, s)
		}
	}
}

func TestLists_Parse(t *testing.T) {
	if list, ok := Strings([]byte(`[ "a" ,"b\n" ]`)); !ok || !slices.Equal(list, []string{"a", "b\n"}) {
		t.Errorf("list is %q", list)
	}
	if string(AppendStrings(nil, []string{"a", "b\n"})) != `["a","b\n"]` {
		t.Error("list is written wrongly")
	}
	for _, bad := range []string{`[1]`, `["a"`, `{}`, `null`, ``, `["a",]`} {
		if list, ok := Strings([]byte(bad)); ok {
			t.Errorf("%s was read as %q", bad, list)
		}
	}
	if m, ok := StringMap([]byte(`{"a":"1","b":"2"}`)); !ok || m["a"] != "1" || m["b"] != "2" {
		t.Errorf("map is %v", m)
	}
	if m, ok := StringMap([]byte(`{"a":1}`)); ok {
		t.Errorf("map of numbers was read as %v", m)
	}
	if e, err := Elements([]byte(` [ {"a":[1]} , "x" ] `)); err != nil || len(e) != 2 || string(e[0]) != `{"a":[1]}` || string(Join(e)) != `[{"a":[1]},"x"]` {
		t.Errorf("elements are %q (%v)", e, err)
	}
}

// FuzzEdit sets and removes in whatever bytes there are: no panic, and on JSON the outcome is what encoding/json makes
// of it.
func FuzzEdit(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1},"c":[1,"]}"]}`), "a", "b")
	f.Add([]byte(`{"a":{"b":"\\\"}"}}`), "a", "x\"")
	f.Add([]byte(`{"a`), "a", "")
	f.Fuzz(func(t *testing.T, in []byte, first, second string) {
		_, _ = Split(in)
		_, _ = Elements(in)
		_, _ = Strings(in)
		_, _ = StringMap(in)
		_ = Get(in, first, second)
		set, setErr := Set(in, []byte(`"new"`), first, second)
		removed, removeErr := Remove(in, first, second)
		var before map[string]any
		if Check(in, 0) != nil || json.Unmarshal(in, &before) != nil || before == nil {
			return
		}
		key1, _ := String(Quote(first)) // with what is not UTF-8 replaced
		key2, _ := String(Quote(second))
		inner, isObject := before[key1].(map[string]any)
		if setErr == nil {
			var after map[string]any
			if err := json.Unmarshal(set, &after); err != nil {
				t.Fatalf("%q became %q: %v", in, set, err)
			}
			got, _ := after[key1].(map[string]any)
			if key1 == first && key2 == second && (got[key2] != "new" || isObject && len(got) != len(inner)+boolInt(!has(inner, key2))) {
				t.Fatalf("%q became %q after setting %q %q", in, set, first, second)
			}
		} else if isObject && key1 == first {
			t.Fatalf("%q cannot be set in %q: %v", second, in, setErr)
		}
		if removeErr == nil && key1 == first && key2 == second {
			var after map[string]any
			if err := json.Unmarshal(removed, &after); err != nil {
				t.Fatalf("%q became %q: %v", in, removed, err)
			}
			if got, ok := after[key1].(map[string]any); ok && has(got, key2) {
				t.Fatalf("%q is still there in %q", second, removed)
			}
		}
	})
}

func has(m map[string]any, key string) bool { _, ok := m[key]; return ok }

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

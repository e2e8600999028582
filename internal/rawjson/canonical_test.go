package rawjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestCanonical_EqualContentIsEqual(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"already canonical", `{"a":1,"b":[true,false,null]}`, `{"a":1,"b":[true,false,null]}`},
		{"white space goes", " {\n\t\"a\" : [ 1 , 2 ] ,\r\"b\":{ } } ", `{"a":[1,2],"b":{}}`},
		{"keys in order", `{"b":1,"a":{"d":2,"c":3}}`, `{"a":{"c":3,"d":2},"b":1}`},
		{"order is that of bytes", `{"b":1,"B":2,"é":3,"a b":4}`, `{"B":2,"a b":4,"b":1,"é":3}`},
		{"order is that of decoded keys", `{"a\u0001":1,"a\"":2,"a!":3}`, `{"a\u0001":1,"a!":3,"a\"":2}`},
		{"numbers stay as written", `[1.0,1e3,-0,10000000000000000000001]`, `[1.0,1e3,-0,10000000000000000000001]`},
		{"one escaping", `["\u0041\/\u00e9\ud83d\ude00\u001f\u000a\b\f\r\t\"\\"]`, `["A/é😀\u001f\n\b\f\r\t\"\\"]`},
		{"what HTML escapes is not escaped", `["\u003ca\u003e\u0026\u2028"]`, "[\"<a>&\u2028\"]"},
		{"half a pair", `["\ud800x","\udc00","\ud800\u0041"]`, "[\"\ufffdx\",\"\ufffd\",\"\ufffdA\"]"},
		{"empty", `{"":{}}`, `{"":{}}`},
		{"prefixes come first", `{"ab":1,"a":2,"abc":3}`, `{"a":2,"ab":1,"abc":3}`},
		{"top level text", ` "x" `, `"x"`},
	} {
		got, err := Canonical([]byte(c.in))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s became %s (%v), want %s", c.name, c.in, got, err, c.want)
		}
	}
}

func TestCanonical_RejectsInvalidJSON(t *testing.T) {
	for name, in := range map[string]string{
		"nothing":              ``,
		"space":                ` `,
		"a key twice":          `{"a":1,"a":2}`,
		"a key twice, apart":   `{"a":1,"b":2,"a":3}`,
		"a key twice, escaped": `{"a":1,"\u0061":2}`,
		"a key twice, inside":  `{"z":[{"b":1,"a":1,"b":1}]}`,
		"a trailing comma":     `{"a":1,}`,
		"a missing colon":      `{"a" 1}`,
		"an open object":       `{"a":1`,
		"an open array":        `[1`,
		"an open string":       `"abc`,
		"two values":           `{} {}`,
		"a bare word":          `nul`,
		"a word too long":      `nulll`,
		"a leading zero":       `01`,
		"a lone minus":         `-`,
		"a lone point":         `1.`,
		"an open exponent":     `1e`,
		"a plus":               `+1`,
		"not UTF-8":            "\"\xff\"",
		"cut UTF-8":            "\"\xc3\"",
		"an encoded surrogate": "\"\xed\xa0\x80\"",
		"a control character":  "\"\n\"",
		"an unknown escape":    `"\x"`,
		"a short escape":       `"\u12"`,
		"a number as a key":    `{1:2}`,
		"mixed brackets":       `{"a":1]`,
		"too deep":             strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1),
		"far too deep":         strings.Repeat(`{"a":`, 1<<20),
	} {
		if got, err := Canonical([]byte(in)); err == nil {
			t.Errorf("%s: %.40s became %.40s", name, in, got)
		}
	}
	deepest := strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)
	if got, err := Canonical([]byte(deepest)); err != nil || string(got) != deepest {
		t.Errorf("the greatest depth is refused: %v", err)
	}
}

func TestCheck_LimitsSize(t *testing.T) {
	if Check([]byte(`{"a":1}`), 7) != nil || Check([]byte(`{"a":1}`), 0) != nil || Check([]byte(`{"a":1}`), 6) == nil {
		t.Error("the limit is not kept")
	}
}

// FuzzCanonical compares with encoding/json: what we accept, it accepts, and both forms say the same; the form of the
// form is itself.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`{"b":1,"a":[1,2.5e-7,"x\u00e9\ud83d\ude00"],"c":{"z":null,"y":true}}`,
		`[{"a":{"b":"\"\\\/"}},-0.0,"\u2028<>&"]`, `"\ud800"`, `{"a":1,"a":2}`, "\"\xff\"", `{"\u0001":1,"!":2}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := Canonical(in)
		if err != nil {
			if len(in) < 400 && acceptable(in) {
				t.Fatalf("%q is refused: %v", in, err)
			}
			return
		}
		if !json.Valid(in) {
			t.Fatalf("%q is not JSON, and became %q", in, got)
		}
		if again, err := Canonical(got); err != nil || !bytes.Equal(got, again) {
			t.Fatalf("%q became %q, then %q (%v)", in, got, again, err)
		}
		if want, ours := reference(t, in), reference(t, got); !bytes.Equal(want, ours) {
			t.Fatalf("%q says %s, its canonical form %s", in, want, ours)
		}
		if len(in) > 0 && got[0] == '{' {
			if o, err := Split(got); err != nil || !bytes.Equal(o.Bytes(), got) {
				t.Fatalf("split and joined, %q is %q (%v)", got, o.Bytes(), err)
			}
		}
	})
}

// acceptable reports whether the reference finds nothing wrong: JSON, UTF-8, no key twice. Depth cannot be a problem in
// a short text.
func acceptable(in []byte) bool {
	if !json.Valid(in) || !bytes.Equal(bytes.ToValidUTF8(in, nil), in) {
		return false
	}
	unique := true
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	var walk func() bool
	walk = func() bool {
		token, err := d.Token()
		if err != nil {
			return false
		}
		switch token {
		case json.Delim('{'):
			seen := map[string]bool{}
			for d.More() {
				key, err := d.Token()
				if err != nil {
					return false
				}
				name, _ := key.(string)
				unique = unique && !seen[name]
				seen[name] = true
				if !walk() {
					return false
				}
			}
			_, err = d.Token()
		case json.Delim('['):
			for d.More() {
				if !walk() {
					return false
				}
			}
			_, err = d.Token()
		}
		return err == nil
	}
	return walk() && unique
}

// reference is how encoding/json writes the value: sorted keys, numbers as written.
func reference(t *testing.T, in []byte) []byte {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("decode %q: %v", in, err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCanonicalCut_OmitsDeeplyNestedValues(t *testing.T) {
	deep := func(levels int, inner string) string {
		return strings.Repeat(`{"a":`, levels) + inner + strings.Repeat("}", levels)
	}
	for name, c := range map[string]struct{ in, want string }{
		"nothing":        {`{"b": [1], "a": {}}`, `{"a":{},"b":[1]}`},
		"as deep as can": {deep(MaxDepth-1, `[1]`), deep(MaxDepth-1, `[1]`)},
		"an array":       {deep(MaxDepth, `[1, {"x": "]"}]`), deep(MaxDepth, `null`)},
		"an object":      {deep(MaxDepth, `{ "x": [1] }`), deep(MaxDepth, `null`)},
		"far too deep":   {`{"b": 1, "a":` + deep(100*MaxDepth, `1`) + `}`, `{"a":` + deep(MaxDepth-1, `null`) + `,"b":1}`},
	} {
		got, err := CanonicalCut([]byte(c.in))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %v, %.100s", name, err, got)
		}
	}
	for name, in := range map[string]string{
		"not closed":       deep(MaxDepth, `[1`),
		"not closed, deep": strings.Repeat("[", 2*MaxDepth),
		"not JSON":         `{"a":x}`,
	} {
		if got, err := CanonicalCut([]byte(in)); err == nil {
			t.Errorf("%s: accepted as %.100s", name, got)
		}
	}
}

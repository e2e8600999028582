package rawjson

import (
	"fmt"
	"strings"
	"testing"
)

// document is about 5 KB, like a common Application.
func document(sorted bool) []byte {
	var b strings.Builder
	b.WriteString(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"labels":{`)
	for i := range 40 {
		n := i
		if !sorted {
			n = 39 - i
		}
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `"example.org/label-%02d":"value of the label with \"quotes\" %d, and quite some text after it"`, n, n)
	}
	b.WriteString(`},"name":"guestbook"},"spec":{"source":{"path":"guestbook","repoURL":"https://example.org/r.git"}}}`)
	return []byte(b.String())
}

func BenchmarkCanonicalInOrder(b *testing.B)    { benchmarkCanonical(b, document(true)) }
func BenchmarkCanonicalOutOfOrder(b *testing.B) { benchmarkCanonical(b, document(false)) }

func benchmarkCanonical(b *testing.B, in []byte) {
	b.Helper()
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Canonical(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	in := document(true)
	b.ReportAllocs()
	for b.Loop() {
		if Text(in, "spec", "source", "path") != "guestbook" {
			b.Fatal("not found")
		}
	}
}

func BenchmarkSet(b *testing.B) {
	in, value := document(true), []byte(`"x"`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Set(in, value, "spec", "source", "path"); err != nil {
			b.Fatal(err)
		}
	}
}

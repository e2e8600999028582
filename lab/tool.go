package lab

import (
	"os"
	"testing"
)

// Tool is the path of one of the lab's tools, such as helm, for a test that needs no cluster. It is built if it is
// missing.
func Tool(t testing.TB, name string) string {
	t.Helper()
	skipIfShort(t)
	set, err := build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	return set.Program(name)
}

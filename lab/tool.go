package lab

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab/internal/tools"
)

var builtTools = sync.OnceValues(func() (tools.Set, error) { return build(context.Background(), os.Stderr) })

// Tool is the path of one of the lab's tools, such as helm, for a test that needs no cluster. It is built if it is
// missing.
func Tool(t testing.TB, name string) string {
	t.Helper()
	skipIfShort(t)
	set, err := builtTools()
	if err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	return set.Program(name)
}

package lab

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab/internal/tools"
)

var builtTools = sync.OnceValues(func() (tools.Set, error) { return build(context.Background(), os.Stderr) })

// Tool returns the path of a tool of the lab, such as helm, for a test without a cluster. It builds the tool if
// necessary.
func Tool(t testing.TB, name string) string {
	t.Helper()
	skipIfShort(t)
	set, err := builtTools()
	if err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	return set.Binary(name)
}

package reconcile

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// set returns an object with a value at a path.
func set(t *testing.T, body []byte, value string, path ...string) []byte {
	t.Helper()
	b, err := rawjson.Set(body, []byte(value), path...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// waitSeconds lets time go by.
func (p *pair) waitSeconds(seconds int) {
	for range seconds / 10 {
		p.now += 10_000
		for side := range p.sides {
			p.step(kind.Side(side), Tick{})
		}
		p.settle()
	}
}

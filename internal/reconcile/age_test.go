package reconcile

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

func TestSourceRevision_IsRecordedOnReplica(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	hub, spoke := ref("w1", "a"), ref("argocd", "a")
	p.user(kind.Hub, hub, app("w1", "a", "default", "v1"))
	const born = "2" // as the hub's first object after its first list
	if got := p.stores[kind.Spoke].objects[spoke].Annotation(kind.SourceRevisionAnnotation); got != born {
		t.Fatalf("it says %q, want %q", got, born)
	}

	// That alone is no reason to write.
	body, err := rawjson.Set(p.stores[kind.Hub].objects[hub].Raw(), []byte(`{"health":{"status":"Healthy"}}`), "status")
	if err != nil {
		t.Fatal(err)
	}
	p.user(kind.Hub, hub, string(body))
	copied := p.stores[kind.Spoke].objects[spoke]
	if got := copied.Annotation(kind.SourceRevisionAnnotation); got != born {
		t.Errorf("it was written again for its age, which is %q now", got)
	}

	// A local change is corrected, from the current state of the hub's object.
	if body, err = rawjson.Set(copied.Raw(), rawjson.Quote("hacked"), "spec", "source", "targetRevision"); err != nil {
		t.Fatal(err)
	}
	p.user(kind.Spoke, spoke, string(body))
	want := p.stores[kind.Hub].objects[hub].ResourceVersion()
	if got := p.stores[kind.Spoke].objects[spoke].Annotation(kind.SourceRevisionAnnotation); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

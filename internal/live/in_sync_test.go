package live

import (
	"maps"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/forward"
	"github.com/argocd-agent/argocd-agent/internal/identity"
)

func TestForward_InSyncOnlyForPrincipalReplicas(t *testing.T) {
	q := newPair(t, nil, nil)
	known := map[string]int64{"a": 100}
	q.there.cfg.InSync = func() map[string]int64 { return known }
	if got, err := q.here.InSyncOf(t.Context(), q.address); err != nil || !maps.Equal(got, known) {
		t.Errorf("%v, %v", got, err)
	}
	if others := q.replicas.Others(); len(others) != 1 || others[0] != q.address {
		t.Errorf("other replicas: %v", others)
	}
	refused := func(what string, store *identity.Store, reason string) {
		t.Helper()
		got, err := forward.New(q.auth(store), directory(q.address), q.here, nil).InSync(t.Context(), q.address)
		if err == nil || got != nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	refused("another certificate of the CA", q.certs("a"), "")
	known = nil
	refused("without search API", q.own, "has no search API")
	known = map[string]int64{"a": 100}
	q.there.cfg.Access.subject = certificateSubject(t, q.own)
	refused("certificate shared with argocd-server", q.own, "argocd-server uses the certificate of the principal")
	if _, err := forward.New(nil, directory(q.address), q.here, nil).InSync(t.Context(), q.address); err == nil {
		t.Error("a replica without a certificate gets times")
	}
}

func certificateSubject(t *testing.T, store *identity.Store) []byte {
	t.Helper()
	m, err := store.Material()
	if err != nil {
		t.Fatal(err)
	}
	return m.Certificate.Leaf.RawSubject
}

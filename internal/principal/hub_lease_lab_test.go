package principal

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hublease"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/lab"
)

// A real API server stores the Lease of two hubs: created, renewed, given up, and taken by the other hub.
func TestHubLease_OnAPIServer(t *testing.T) {
	o := newLabHub(t)
	cluster := lab.Get(t).Hub().Admin()
	client, err := kube.NewClient(cluster)
	o.must(err)
	use := func(clusterUID string, s hubstate.State) (*hublease.Lease, error) {
		t.Helper()
		_, stored, err := hubstate.Read(t.Context(), client, o.namespace, clusterUID)
		o.must(err)
		o.must(hubstate.Write(t.Context(), client, o.namespace, stored, s))
		l, err := hublease.New(hublease.Settings{Cluster: cluster, Namespace: o.namespace, Name: "hubs", Duration: time.Hour}, client, o.namespace, clusterUID, s, slog.New(slog.DiscardHandler))
		o.must(err)
		return l, l.TryHold(t.Context())
	}
	holder := func() string {
		t.Helper()
		lease, err := o.client.CoordinationV1().Leases(o.namespace).Get(t.Context(), "hubs", metav1.GetOptions{})
		o.must(err)
		if lease.Spec.RenewTime == nil || *lease.Spec.LeaseDurationSeconds != 3600 {
			t.Errorf("the Lease is %+v", lease.Spec)
		}
		if lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	active := hubstate.State{Identity: "group", Role: hubstate.Active, Generation: 1}
	for range 2 { // created, then renewed
		l, err := use("hub-1", active)
		o.must(err)
		if !l.Held() || holder() != "hub-1" {
			t.Fatalf("the Lease is held by %q: %s", holder(), l.Reason())
		}
	}
	standby := hubstate.State{Identity: "group", Role: hubstate.Standby, Generation: 1, Predecessor: engine.Store{UID: "hub-1", Revision: 5}}
	l, err := use("hub-2", standby)
	o.must(err)
	if l.Held() || !strings.Contains(l.Reason(), "holds the Lease") {
		t.Errorf("a standby: held %t, %q", l.Held(), l.Reason())
	}
	demoted := active
	demoted.Role = hubstate.Standby
	_, err = use("hub-1", demoted)
	o.must(err)
	if holder() != "" {
		t.Fatalf("a demoted hub keeps the Lease: %q", holder())
	}
	promoted := standby
	promoted.Role, promoted.Generation = hubstate.Active, 2
	l, err = use("hub-2", promoted)
	o.must(err)
	if !l.Held() || holder() != "hub-2" {
		t.Fatalf("the Lease is held by %q: %s", holder(), l.Reason())
	}
	// The first hub comes back as it was, and becomes the standby.
	if _, err = use("hub-1", active); err == nil || !strings.Contains(err.Error(), "start again") {
		t.Fatalf("the first hub: %v", err)
	}
	s, _, err := hubstate.Read(t.Context(), client, o.namespace, "hub-1")
	o.must(err)
	if want := (hubstate.State{Identity: "group", Role: hubstate.Standby, Generation: 2, Predecessor: engine.Store{UID: "hub-2"}, WasActive: 1}); s != want {
		t.Errorf("the first hub is %+v", s)
	}
}

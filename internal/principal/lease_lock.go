package principal

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// leaseLock implements resourcelock.Interface with the principal's own client, which needs no further permissions.
type leaseLock struct {
	client   *kube.Client
	ref      kind.Ref
	identity string
	revision string // of the Lease as it was last read or written
}

// leaseSpec is the spec of a Lease.
type leaseSpec struct {
	HolderIdentity       string           `json:"holderIdentity"`
	LeaseDurationSeconds int              `json:"leaseDurationSeconds,omitempty"`
	AcquireTime          metav1.MicroTime `json:"acquireTime"`
	RenewTime            metav1.MicroTime `json:"renewTime"`
	LeaseTransitions     int              `json:"leaseTransitions"`
}

func (l *leaseLock) spec(r resourcelock.LeaderElectionRecord) leaseSpec {
	return leaseSpec{HolderIdentity: r.HolderIdentity, LeaseDurationSeconds: max(1, r.LeaseDurationSeconds), LeaseTransitions: r.LeaderTransitions,
		AcquireTime: metav1.MicroTime{Time: r.AcquireTime.Time}, RenewTime: metav1.MicroTime{Time: r.RenewTime.Time}}
}

// Get implements resourcelock.Interface.
func (l *leaseLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	o, err := l.client.Get(ctx, l.ref)
	if err != nil {
		return nil, nil, err
	}
	if o == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Group: l.ref.Resource.Group, Resource: l.ref.Resource.Plural}, l.ref.Name)
	}
	l.revision = o.ResourceVersion()
	var spec leaseSpec
	if err := json.Unmarshal(o.Get("spec"), &spec); err != nil {
		return nil, nil, fmt.Errorf("read Lease %s: %w", l.ref.Name, err)
	}
	r := &resourcelock.LeaderElectionRecord{HolderIdentity: spec.HolderIdentity, LeaseDurationSeconds: spec.LeaseDurationSeconds, LeaderTransitions: spec.LeaseTransitions,
		AcquireTime: metav1.Time{Time: spec.AcquireTime.Time}, RenewTime: metav1.Time{Time: spec.RenewTime.Time}}
	return r, o.Get("spec"), nil
}

// Create implements resourcelock.Interface.
func (l *leaseLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	o, err := l.client.Create(ctx, l.ref, map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": l.ref.Resource.Kind,
		"metadata": map[string]any{"name": l.ref.Name, "namespace": l.ref.Namespace}, "spec": l.spec(r)})
	if err == nil {
		l.revision = o.ResourceVersion()
	}
	return err
}

// Update implements resourcelock.Interface. It fails if the Lease has changed since it was read.
func (l *leaseLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	o, err := l.client.Patch(ctx, l.ref, map[string]any{"metadata": map[string]any{"resourceVersion": l.revision}, "spec": l.spec(r)})
	if err == nil {
		l.revision = o.ResourceVersion()
	}
	return err
}

// RecordEvent implements resourcelock.Interface.
func (*leaseLock) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (l *leaseLock) Identity() string { return l.identity }

// Describe implements resourcelock.Interface.
func (l *leaseLock) Describe() string { return l.ref.Namespace + "/" + l.ref.Name }

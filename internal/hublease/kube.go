package hublease

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// Annotations of the Lease.
const (
	identityAnnotation   = kind.Prefix + "hub-identity"
	generationAnnotation = kind.Prefix + "hub-generation"
)

// Settings of the Lease.
type Settings struct {
	Cluster   *rest.Config // of the third cluster; if nil, there is no Lease
	Namespace string
	Name      string
	Duration  time.Duration
	MaxLag    time.Duration // see Behind
}

// New returns the Lease for a hub. client is that of the hub, whose state is in namespace.
func New(s Settings, client *kube.Client, namespace, clusterUID string, state hubstate.State, log *slog.Logger) (*Lease, error) {
	third, err := kube.NewClient(s.Cluster)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster of the Lease: %w", err)
	}
	return &Lease{lease: clusterLease{third, kind.Ref{Resource: kube.Leases, Namespace: s.Namespace, Name: s.Name}},
		states: configMap{client, namespace, clusterUID}, clusterUID: clusterUID, state: state, duration: s.Duration, maxLag: s.MaxLag, clock: time.Now, log: log}, nil
}

// clusterLease is the Lease in a cluster.
type clusterLease struct {
	client *kube.Client
	ref    kind.Ref
}

func (c clusterLease) read(ctx context.Context) (Record, string, time.Duration, error) {
	o, err := c.client.Get(ctx, c.ref)
	if err != nil {
		return Record{}, "", 0, fmt.Errorf("read Lease %s/%s: %w", c.ref.Namespace, c.ref.Name, err)
	}
	if o == nil {
		return Record{}, "", 0, nil
	}
	holder, duration := kube.LeaseHolder(o)
	l := Record{Exists: true, Identity: o.Annotation(identityAnnotation), Holder: holder}
	if l.Generation, err = strconv.ParseUint(o.Annotation(generationAnnotation), 10, 64); err != nil {
		return Record{}, "", 0, fmt.Errorf("Lease %s/%s has no valid annotation %s: delete the Lease, or set another --hub-lease-name", c.ref.Namespace, c.ref.Name, generationAnnotation)
	}
	return l, o.ResourceVersion(), duration, nil
}

func (c clusterLease) write(ctx context.Context, resourceVersion string, l Record, duration time.Duration) error {
	metadata := map[string]any{"name": c.ref.Name, "namespace": c.ref.Namespace,
		"annotations": map[string]string{identityAnnotation: l.Identity, generationAnnotation: strconv.FormatUint(l.Generation, 10)}}
	object := map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": kube.LeaseSpec(l.Holder, duration)}
	var err error
	if resourceVersion == "" {
		_, err = c.client.Create(ctx, c.ref, object)
	} else {
		metadata["resourceVersion"] = resourceVersion
		_, err = c.client.Patch(ctx, c.ref, object)
	}
	if err != nil {
		return fmt.Errorf("write Lease %s/%s: %w", c.ref.Namespace, c.ref.Name, err)
	}
	return nil
}

// configMap is the state of a hub in its ConfigMap.
type configMap struct {
	client                *kube.Client
	namespace, clusterUID string
}

func (c configMap) read(ctx context.Context) (hubstate.State, error) {
	s, _, err := hubstate.Read(ctx, c.client, c.namespace, c.clusterUID)
	return s, err
}

func (c configMap) replace(ctx context.Context, from, to hubstate.State) error {
	is, o, err := hubstate.Read(ctx, c.client, c.namespace, c.clusterUID)
	if err != nil {
		return err
	}
	if !hubstate.SameRole(is, from) {
		return errRestart // another replica or a user has changed it
	}
	if from.Role == hubstate.Standby {
		to.Predecessor = is.Predecessor // replication updates it all the time
	}
	return hubstate.Write(ctx, c.client, c.namespace, o, to)
}

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// fieldManager is the field manager of the lab.
const fieldManager = "argocd-agent-lab"

// Apply applies the objects of a YAML stream by server-side apply. Namespaced objects without a namespace go to
// defaultNamespace.
func Apply(ctx context.Context, config *rest.Config, defaultNamespace string, manifests []byte) error {
	objects, err := decode(manifests)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create a client: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("create a discovery client: %w", err)
	}
	groups, err := restmapper.GetAPIGroupResources(kinds)
	if err != nil {
		return fmt.Errorf("list kinds: %w", err)
	}
	mappings := restmapper.NewDiscoveryRESTMapper(groups)
	for _, object := range objects {
		kind := object.GroupVersionKind()
		mapping, err := mappings.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", kind.Kind, object.GetName(), err)
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			if object.GetNamespace() == "" {
				object.SetNamespace(defaultNamespace)
			}
			resource = client.Resource(mapping.Resource).Namespace(object.GetNamespace())
		}
		_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", kind.Kind, object.GetName(), err)
		}
	}
	return nil
}

// apply applies manifests to this cluster and retries while it is starting.
func (c *Cluster) apply(ctx context.Context, manifests []byte) error {
	return retry(ctx, func() error { return Apply(ctx, c.admin, "argocd", manifests) })
}

// errNotReady means that a starting cluster will be ready in a moment.
var errNotReady = errors.New("not yet")

// retry retries errors of a starting cluster: a namespace or a CRD that is not served yet.
func retry(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || !isTransient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func isTransient(err error) bool {
	return errors.Is(err, errNotReady) || meta.IsNoMatchError(errors.Unwrap(err)) || apierrors.IsForbidden(err) ||
		apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) ||
		apierrors.IsConflict(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}

// decode splits a YAML stream into objects. Empty documents are skipped.
func decode(manifests []byte) ([]*unstructured.Unstructured, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	var objects []*unstructured.Unstructured
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("split manifests: %w", err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return nil, fmt.Errorf("decode a manifest: %w", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/lab"
)

var (
	applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	appProjects  = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}
	appSets      = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applicationsets"}
	agents       = schema.GroupVersionResource{Group: "argocd-agent.argoproj-labs.io", Version: "v1alpha1", Resource: "agents"}
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	deployments  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	replicaSets  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	pods         = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	leases       = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	jobs         = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
)

// clusterClient is an administrator's client of a cluster.
type clusterClient struct {
	*lab.Cluster
	client dynamic.Interface
}

func newSite(c *lab.Cluster) *clusterClient {
	config := c.Admin()
	if err := rest.LoadTLSFiles(config); err != nil { // otherwise client-go reads the files after the lab has stopped
		panic(err)
	}
	config.CertFile, config.KeyFile, config.CAFile = "", "", ""
	config.WarningHandler = rest.NoWarnings{}
	return &clusterClient{Cluster: c, client: dynamic.NewForConfigOrDie(config)}
}

// object is one object of a cluster. It need not exist.
type object struct {
	site            *clusterClient
	kind            schema.GroupVersionResource
	namespace, name string
}

func (s *clusterClient) object(kind schema.GroupVersionResource, namespace, name string) object {
	return object{s, kind, namespace, name}
}

func (s *clusterClient) app(namespace, name string) object {
	return s.object(applications, namespace, name)
}
func (s *clusterClient) project(name string) object {
	return s.object(appProjects, lab.ArgoCDNamespace, name)
}
func (s *clusterClient) secret(name string) object {
	return s.object(secrets, lab.ArgoCDNamespace, name)
}
func (s *clusterClient) agent(name string) object { return s.object(agents, lab.ArgoCDNamespace, name) }
func (s *clusterClient) configMap(name string) object {
	return s.object(configMaps, lab.ArgoCDNamespace, name)
}

// dismiss deletes all objects of an agent on the hub without notifying it.
func (s *clusterClient) dismiss(t testing.TB, name string) {
	t.Helper()
	s.agent(name).discard(t)
	s.secret("cluster-" + name).discard(t)
}

func (o object) String() string {
	return fmt.Sprintf("%s %s/%s on %s", strings.TrimSuffix(o.kind.Resource, "s"), o.namespace, o.name, o.site.Name)
}

func (o object) in() dynamic.ResourceInterface {
	if o.namespace == "" {
		return o.site.client.Resource(o.kind)
	}
	return o.site.client.Resource(o.kind).Namespace(o.namespace)
}

// call returns the context of one request.
func call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

// get returns the object, or nil if it does not exist.
func (o object) get(t testing.TB) *unstructured.Unstructured {
	t.Helper()
	u, err := o.tryGet()
	if err != nil {
		t.Fatalf("get %s: %v", o, err)
	}
	return u
}

func (o object) tryGet() (*unstructured.Unstructured, error) {
	ctx, cancel := call()
	defer cancel()
	u, err := o.in().Get(ctx, o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return u, err
}

// create creates the object. It is deleted at the end of the test.
func (o object) create(t testing.TB, content map[string]any) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: content}
	u.SetName(o.name)
	u.SetNamespace(o.namespace)
	ctx, cancel := call()
	defer cancel()
	made, err := o.in().Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create %s: %v", o, err)
	}
	t.Cleanup(func() { o.discard(t) })
	return made
}

// discard deletes the object, on this side without its workloads.
func (o object) discard(t testing.TB) {
	t.Helper()
	ctx, cancel := call()
	defer cancel()
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	_, err := o.in().Patch(ctx, o.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err == nil {
		err = o.in().Delete(ctx, o.name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		t.Logf("clean up %s: %v", o, err)
	}
}

// delete requests the deletion of the object.
func (o object) delete(t testing.TB) {
	t.Helper()
	ctx, cancel := call()
	defer cancel()
	if err := o.in().Delete(ctx, o.name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete %s: %v", o, err)
	}
}

// edit changes the object as a user does. It retries on a conflict.
func (o object) edit(t testing.TB, change func(*unstructured.Unstructured)) {
	t.Helper()
	await(t, o.String()+" to be edited", func() error {
		u, err := o.tryGet()
		if err != nil {
			return err
		}
		if u == nil {
			return errors.New("there is none")
		}
		change(u)
		ctx, cancel := call()
		defer cancel()
		_, err = o.in().Update(ctx, u, metav1.UpdateOptions{})
		return err
	})
}

// patch applies a merge patch in JSON.
func (o object) patch(t testing.TB, change string) {
	t.Helper()
	ctx, cancel := call()
	defer cancel()
	if _, err := o.in().Patch(ctx, o.name, types.MergePatchType, []byte(change), metav1.PatchOptions{}); err != nil {
		t.Fatalf("patch %s: %v", o, err)
	}
}

// becomes waits until the object exists and meets all conditions, and returns it.
func (o object) becomes(t testing.TB, wanted ...condition) *unstructured.Unstructured {
	t.Helper()
	var found *unstructured.Unstructured
	await(t, o.String(), func() error {
		u, err := o.tryGet()
		if err != nil {
			return err
		}
		if u == nil {
			return errors.New("there is none")
		}
		found = u
		for _, c := range wanted {
			if err := c(u); err != nil {
				return fmt.Errorf("%w; it is %s", err, describe(u))
			}
		}
		return nil
	})
	return found
}

// describe formats an object for a failure message.
func describe(u *unstructured.Unstructured) string {
	u = u.DeepCopy()
	u.SetManagedFields(nil)
	if u.GetKind() == "Secret" {
		unstructured.RemoveNestedField(u.Object, "data")
	}
	text, err := yaml.Marshal(u.Object)
	if err != nil {
		return err.Error()
	}
	const most = 6000
	return string(text[:min(len(text), most)])
}

// goes waits until the object does not exist.
func (o object) goes(t testing.TB) {
	t.Helper()
	await(t, o.String()+" to go", func() error {
		u, err := o.tryGet()
		if err == nil && u != nil {
			err = fmt.Errorf("it is there, finalizers %v, deletion %v", u.GetFinalizers(), u.GetDeletionTimestamp())
		}
		return err
	})
}

// is fails unless the object meets all conditions now.
func (o object) is(t testing.TB, wanted ...condition) *unstructured.Unstructured {
	t.Helper()
	u := o.get(t)
	if u == nil {
		t.Fatalf("there is no %s", o)
	}
	for _, c := range wanted {
		if err := c(u); err != nil {
			t.Fatalf("%s: %v", o, err)
		}
	}
	return u
}

// isAbsent fails if the object exists now.
func (o object) isAbsent(t testing.TB) {
	t.Helper()
	if o.get(t) != nil {
		t.Fatalf("there is a %s", o)
	}
}

func (s *clusterClient) ensureNamespace(t testing.TB, name string) {
	t.Helper()
	ctx, cancel := call()
	defer cancel()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	_, err := s.client.Resource(namespaces).Create(ctx, u, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create namespace %s: %v", name, err)
	}
}

// openDefaultProject permits Applications of all namespaces in the default AppProject.
func (s *clusterClient) openDefaultProject(t testing.TB) {
	t.Helper()
	project := s.project("default")
	if project.get(t) == nil { // a lab without argocd-server does not have it
		project.create(t, projectOf())
	}
	project.patch(t, `{"spec":{"sourceNamespaces":["*"]}}`)
}

// tryCreate creates the object and returns the error.
func (o object) tryCreate(content map[string]any, dryRun ...string) error {
	u := &unstructured.Unstructured{Object: content}
	u.SetName(o.name)
	u.SetNamespace(o.namespace)
	ctx, cancel := call()
	defer cancel()
	_, err := o.in().Create(ctx, u, metav1.CreateOptions{DryRun: dryRun})
	return err
}

func unstructuredResource(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

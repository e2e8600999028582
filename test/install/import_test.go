package install

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/podrun"
)

// existingInstallation is a lab with the objects that the argocd-agent of argoproj-labs leaves on a hub, a managed and an
// autonomous cluster. Its programs do not run. The clusters have the workloads that Argo CD deployed.
type existingInstallation struct {
	*lab.Lab
	programs string
	port     int // of the principal
	ca       *x509.Certificate
	caKey    *rsa.PrivateKey
	secrets  map[string]map[string][]byte // data of the cluster Secrets, by name
}

const (
	sourceUID    = "argocd.argoproj.io/source-uid"
	principalUID = "argocd.argoproj.io/principal-uid"
	formerHub    = "7b0e9a2c-0000-4000-8000-000000000001" // in ConfigMap argocd-agent-principal-identity
)

var appProjects = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}

// TestMigration_FromExistingInstallation moves an installation with argocd-agentctl import, back, again, and confirms it.
// Nothing is deleted or created again.
func TestMigration_FromExistingInstallation(t *testing.T) {
	e := newExistingInstallation(t)
	before := e.objects(t)
	clusters := []string{"managed", "autonomous"}

	plan := e.ctl(t, "import", "plan")
	for _, want := range []string{"Deployment argocd-agent-principal", "principal.jwt.secret-name", "Agent managed", "Service argocd-agent-principal"} {
		if !strings.Contains(plan, want) {
			t.Errorf("the plan has no %s:\n%s", want, plan)
		}
	}
	if out, err := e.tryCtl(t, "import", "agent", "managed", "--agent-context", "managed", "--yes"); err == nil || !strings.Contains(out, "the existing principal still runs") {
		t.Errorf("an agent moves before its hub: %v: %s", err, out)
	}
	if out, err := e.tryCtl(t, "import", "plan", "managed", "--agent-context", "autonomous"); err == nil || !strings.Contains(out, `it names agent "autonomous"`) {
		t.Errorf("the wrong cluster is accepted: %v: %s", err, out)
	}
	e.same(t, "plans", before, e.objects(t))

	pods, whole := map[string]*podrun.Pod{}, t
	move := func(t *testing.T) {
		t.Helper()
		e.ctl(t, "import", "hub", "--yes")
		e.replicas(t, "hub", map[string]int32{"argocd-agent-principal": 0, "argocd-agent-principal-imported": 2})
		pods["hub"] = e.start(whole, "hub", "argocd-agent-principal-imported")
		for _, name := range clusters {
			e.ctl(t, "import", "agent", name, "--agent-context", name, "--yes", "--wait=false")
			e.replicas(t, name, map[string]int32{"argocd-agent-agent": 0, "argocd-agent-agent-imported": 1})
			pods[name] = e.start(whole, name, "argocd-agent-agent-imported")
			e.ctl(t, "import", "agent", name, "--agent-context", name, "--yes") // continues, and waits
		}
	}
	if !t.Run("Import", func(t *testing.T) {
		move(t)
		e.same(t, "the import", before, e.objects(t))
		e.works(t, "first")
	}) {
		return
	}
	if !t.Run("Revert", func(t *testing.T) {
		end := func(cluster string) { // its Deployment has no replicas
			t.Helper()
			if err := pods[cluster].Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range clusters {
			e.ctl(t, "import", "revert", name, "--agent-context", name, "--yes")
			e.replicas(t, name, map[string]int32{"argocd-agent-agent": 1, "argocd-agent-agent-imported": 0})
			end(name)
			lab.Await(t, "the hub to notice", func(ctx context.Context) error {
				if out := e.ctl(t, "agent", "list", "--disconnected", "-o", "name"); !strings.Contains(out, "/"+name) {
					return fmt.Errorf("only %q are disconnected", out)
				}
				return ctx.Err()
			})
		}
		e.ctl(t, "import", "revert", "--yes")
		e.replicas(t, "hub", map[string]int32{"argocd-agent-principal": 2, "argocd-agent-principal-imported": 0})
		end("hub")
		e.same(t, "the revert", before, e.objects(t))
		e.hasIdentities(t)
		for name, data := range e.secrets {
			secret, err := e.Hub().Client().CoreV1().Secrets(lab.ArgoCDNamespace).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || !maps.EqualFunc(secret.Data, data, bytes.Equal) {
				t.Errorf("Secret %s differs: %v", name, err)
			}
		}
	}) {
		return
	}
	t.Run("Confirm", func(t *testing.T) {
		move(t)
		if out, err := e.tryCtl(t, "import", "confirm"); err == nil || !strings.Contains(out, "--yes is required") || !strings.Contains(out, "Secret argocd-agent-jwt") {
			t.Errorf("it deletes without being asked to: %v: %s", err, out)
		}
		e.same(t, "the second import", before, e.objects(t))
		for _, name := range clusters {
			e.ctl(t, "import", "confirm", name, "--agent-context", name, "--yes")
			e.replicas(t, name, map[string]int32{"argocd-agent-agent-imported": 1})
		}
		e.ctl(t, "import", "confirm", "--yes")
		e.replicas(t, "hub", map[string]int32{"argocd-agent-principal-imported": 2})
		e.works(t, "second")
		after := e.objects(t)
		gone := map[string]bool{}
		for key := range before {
			if after[key] == "" {
				gone[key] = true
			} else if after[key] != before[key] {
				t.Errorf("%s was created again", key)
			}
		}
		want := map[string]bool{"hub/deployments/argocd/argocd-agent-principal": true, "hub/configmaps/argocd/argocd-agent-params": true,
			"hub/configmaps/argocd/argocd-agent-principal-identity": true, "hub/secrets/argocd/argocd-agent-jwt": true, "hub/serviceaccounts/argocd/argocd-agent-principal": true}
		for _, name := range clusters {
			for _, object := range []string{"deployments/argocd/argocd-agent-agent", "configmaps/argocd/argocd-agent-params", "serviceaccounts/argocd/argocd-agent-agent"} {
				want[name+"/"+object] = true
			}
		}
		if !maps.Equal(gone, want) {
			t.Errorf("deleted: %v\nwant: %v", gone, want)
		}
	})
}

func (e *existingInstallation) tryCtl(t testing.TB, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := e.Command(ctx, e.programs+"/argocd-agentctl", append(args, "--principal-context", "hub")...).CombinedOutput()
	return string(out), err
}

// ctl runs the CLI on the hub and returns its output.
func (e *existingInstallation) ctl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := e.tryCtl(t, args...)
	if err != nil {
		t.Fatalf("argocd-agentctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	t.Logf("$ argocd-agentctl %s\n%s", strings.Join(args, " "), out)
	return out
}

// start runs the pod of a Deployment as a process.
func (e *existingInstallation) start(t *testing.T, cluster, name string) *podrun.Pod {
	t.Helper()
	d, err := e.Cluster(cluster).Client().AppsV1().Deployments(lab.ArgoCDNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Kind, d.APIVersion = "Deployment", "apps/v1"
	manifest, err := yaml.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return startPod(t, e.Cluster(cluster), manifest, name, e.programs+"/argocd-agent", func(o *podrun.Options) {
		if cluster == "hub" {
			o.Ports[8443] = e.port
		}
	})
}

// replicas checks the Deployments of both programs.
func (e *existingInstallation) replicas(t *testing.T, cluster string, want map[string]int32) {
	t.Helper()
	list, err := e.Cluster(cluster).Client().AppsV1().Deployments(lab.ArgoCDNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int32{}
	for i := range list.Items {
		if d := &list.Items[i]; strings.HasPrefix(d.Name, "argocd-agent-") {
			got[d.Name] = *d.Spec.Replicas
		}
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%s: replicas %v, want %v", cluster, got, want)
	}
}

// objects returns the UIDs of all objects except pods of the programs, and of objects that Kubernetes writes by itself.
func (e *existingInstallation) objects(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, cluster := range []string{"hub", "managed", "autonomous"} {
		for _, resource := range []schema.GroupVersionResource{applications, appProjects, {Version: "v1", Resource: "namespaces"}, {Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "services"},
			{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "serviceaccounts"},
			{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "replicasets"}} {
			list, err := e.Cluster(cluster).Dynamic().Resource(resource).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range list.Items {
				program := one.GetLabels()["app.kubernetes.io/part-of"] == "argocd-agent" && (resource.Resource == "pods" || resource.Resource == "replicasets")
				if !program && !strings.HasPrefix(one.GetNamespace(), "kube-") {
					found[strings.Join([]string{cluster, resource.Resource, one.GetNamespace(), one.GetName()}, "/")] = string(one.GetUID())
				}
			}
		}
	}
	for _, workload := range []string{"managed/deployments/shop/guestbook", "autonomous/deployments/blog/guestbook"} {
		if found[workload] == "" {
			t.Fatalf("there is no %s", workload)
		}
	}
	return found
}

// same checks that every object still exists.
func (e *existingInstallation) same(t *testing.T, step string, before, after map[string]string) {
	t.Helper()
	for key, uid := range before {
		if after[key] != uid {
			t.Errorf("%s: %s had UID %s and has %q", step, key, uid, after[key])
		}
	}
}

func (e *existingInstallation) app(t testing.TB, cluster, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	app, err := e.Cluster(cluster).Dynamic().Resource(applications).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return app
}

func (e *existingInstallation) patch(t testing.TB, cluster, namespace, name string, change map[string]any) {
	t.Helper()
	body, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Cluster(cluster).Dynamic().Resource(applications).Namespace(namespace).Patch(t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (e *existingInstallation) await(t testing.TB, cluster, namespace, name, what string, done func(*unstructured.Unstructured) bool) {
	t.Helper()
	lab.Await(t, what, func(ctx context.Context) error {
		app, err := e.Cluster(cluster).Dynamic().Resource(applications).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && !done(app) {
			err = fmt.Errorf("%s/%s is %v", namespace, name, app.Object)
		}
		return err
	})
}

func text(u *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(u.Object, path...)
	return value
}

// works checks that changes arrive in both directions, and that Applications are in sync.
func (e *existingInstallation) works(t *testing.T, word string) {
	t.Helper()
	said := func(u *unstructured.Unstructured) bool {
		info, _, _ := unstructured.NestedSlice(u.Object, "spec", "info")
		return len(info) == 1 && info[0].(map[string]any)["value"] == word
	}
	say := map[string]any{"spec": map[string]any{"info": []any{map[string]any{"name": "said", "value": word}}}}
	e.patch(t, "hub", "managed", "shop", say)
	e.await(t, "managed", lab.ArgoCDNamespace, "shop", "the change of the hub", said)
	e.patch(t, "autonomous", lab.ArgoCDNamespace, "blog", say)
	e.await(t, "hub", "autonomous", "blog", "the change of the autonomous cluster", said)
	for namespace, name := range map[string]string{"managed": "shop", "autonomous": "blog"} {
		reconciled := text(e.app(t, "hub", namespace, name), "status", "reconciledAt")
		e.patch(t, "hub", namespace, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"argocd.argoproj.io/refresh": "normal"}}})
		e.await(t, "hub", namespace, name, "the status after a refresh", func(u *unstructured.Unstructured) bool {
			return u.GetAnnotations()["argocd.argoproj.io/refresh"] == "" && text(u, "status", "reconciledAt") != reconciled && text(u, "status", "sync", "status") == "Synced" &&
				text(u, "status", "health", "status") == "Healthy"
		})
	}
	e.hasIdentities(t)
}

// hasIdentities checks that the existing programs recognize the copies.
func (e *existingInstallation) hasIdentities(t *testing.T) {
	t.Helper()
	for _, pair := range [][2]*unstructured.Unstructured{
		{e.app(t, "hub", "managed", "shop"), e.app(t, "managed", lab.ArgoCDNamespace, "shop")},
		{e.app(t, "autonomous", lab.ArgoCDNamespace, "blog"), e.app(t, "hub", "autonomous", "blog")},
	} {
		if source, copied := pair[0], pair[1]; copied.GetAnnotations()[sourceUID] != string(source.GetUID()) || source.GetAnnotations()[sourceUID] != "" {
			t.Errorf("the copy of %s has %v, the source %v", source.GetName(), copied.GetAnnotations(), source.GetAnnotations())
		}
	}
}

func newExistingInstallation(t *testing.T) *existingInstallation {
	t.Helper()
	e := &existingInstallation{Lab: lab.New(t, lab.Options{}), programs: buildBinaries(t), secrets: map[string]map[string][]byte{}}
	var err error
	if e.port, err = e.Port(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.newCA(t)
	e.apply(t, "hub", "existing-hub.yaml")
	e.issue(t, "hub", "argocd-agent-principal-tls", "principal")
	e.issue(t, "hub", "argocd-agent-resource-proxy-tls", "resource-proxy")
	for _, name := range []string{"managed", "autonomous"} {
		e.apply(t, name, "existing-agent.yaml")
		e.create(t, name, "argocd-agent-ca", corev1.SecretTypeOpaque, nil, map[string][]byte{"ca.crt": encode("CERTIFICATE", e.ca.Raw)})
		cert, key := e.issue(t, name, "argocd-agent-client-tls", name)
		config, err := json.Marshal(map[string]any{"tlsClientConfig": map[string]any{"insecure": false, "certData": cert, "keyData": key, "caData": encode("CERTIFICATE", e.ca.Raw)}})
		if err != nil {
			t.Fatal(err)
		}
		labels := map[string]string{"argocd.argoproj.io/secret-type": "cluster", "argocd-agent.argoproj-labs.io/agent-name": name}
		if name == "autonomous" {
			labels["argocd-agent.argoproj-labs.io/self-registered-cluster"] = "true"
		}
		e.secrets["cluster-"+name] = map[string][]byte{"name": []byte(name), "config": config, "server": []byte("https://argocd-agent-resource-proxy:9090?agentName=" + name)}
		e.create(t, "hub", "cluster-"+name, corev1.SecretTypeOpaque, labels, e.secrets["cluster-"+name])
	}
	for cluster, name := range map[string]string{"hub": "argocd-agent-principal", "managed": "argocd-agent-agent", "autonomous": "argocd-agent-agent"} {
		lab.Await(t, "the pods of "+name, func(ctx context.Context) error {
			d, err := e.Cluster(cluster).Client().AppsV1().Deployments(lab.ArgoCDNamespace).Get(ctx, name, metav1.GetOptions{})
			if err == nil && d.Status.ReadyReplicas == 0 {
				err = fmt.Errorf("none is ready")
			}
			return err
		})
	}
	e.applications(t)
	return e
}

// applications creates Applications, projects and a repository with their copies.
func (e *existingInstallation) applications(t *testing.T) {
	t.Helper()
	app := func(project, destination, namespace string) map[string]any {
		return map[string]any{"spec": map[string]any{"project": project, "source": map[string]any{"repoURL": e.RepoURL("plain"), "path": "."},
			"destination": map[string]any{"name": destination, "namespace": namespace},
			"syncPolicy":  map[string]any{"automated": map[string]any{}, "syncOptions": []any{"CreateNamespace=true"}}},
			"metadata": map[string]any{"finalizers": []any{"resources-finalizer.argocd.argoproj.io"}}}
	}
	project := func(destination, server string, namespaces ...any) map[string]any {
		return map[string]any{"spec": map[string]any{"sourceRepos": []any{"*"}, "sourceNamespaces": namespaces, "clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
			"destinations": []any{map[string]any{"name": destination, "server": server, "namespace": "*"}}}}
	}
	const updated = "argocd-agent.argoproj.io/last-updated"

	// The hub owns what the managed cluster has.
	source := e.make(t, "hub", appProjects, lab.ArgoCDNamespace, "team", project("managed", "*", "managed"))
	e.make(t, "managed", appProjects, lab.ArgoCDNamespace, "team", project("in-cluster", "https://kubernetes.default.svc"), sourceUID, source)
	shop := e.make(t, "hub", applications, "managed", "shop", app("team", "managed", "shop"))
	e.make(t, "managed", applications, lab.ArgoCDNamespace, "shop", app("team", "in-cluster", "shop"), sourceUID, shop, principalUID, formerHub)

	// The autonomous cluster owns what the hub shows of it.
	var local *unstructured.Unstructured
	lab.Await(t, "the default project", func(ctx context.Context) (err error) {
		local, err = e.Cluster("autonomous").Dynamic().Resource(appProjects).Namespace(lab.ArgoCDNamespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	e.make(t, "hub", appProjects, lab.ArgoCDNamespace, "autonomous-default", project("autonomous", "*", "autonomous"), sourceUID, string(local.GetUID()))
	blog := e.make(t, "autonomous", applications, lab.ArgoCDNamespace, "blog", app("default", "in-cluster", "blog"))
	e.make(t, "hub", applications, "autonomous", "blog", app("autonomous-default", "autonomous", "blog"), sourceUID, blog, updated, "2026-01-02T03:04:05.678Z")

	for cluster, name := range map[string]string{"managed": "shop", "autonomous": "blog"} {
		e.await(t, cluster, lab.ArgoCDNamespace, name, "workloads of "+name, func(u *unstructured.Unstructured) bool {
			return text(u, "status", "sync", "status") == "Synced" && text(u, "status", "health", "status") == "Healthy" && u.Object["operation"] == nil
		})
		e.patch(t, "hub", cluster, name, map[string]any{"status": e.app(t, cluster, lab.ArgoCDNamespace, name).Object["status"]})
	}
}

// make creates an object with annotations, given as pairs, and returns its UID.
func (e *existingInstallation) make(t *testing.T, cluster string, resource schema.GroupVersionResource, namespace, name string, content map[string]any, annotations ...string) string {
	t.Helper()
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(resource.GroupVersion().String())
	u.SetKind(map[string]string{"applications": "Application", "appprojects": "AppProject"}[resource.Resource])
	u.SetName(name)
	all := map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		all[annotations[i]] = annotations[i+1]
	}
	u.SetAnnotations(all)
	made, err := e.Cluster(cluster).Dynamic().Resource(resource).Namespace(namespace).Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(made.GetUID())
}

// apply applies a file of testdata.
func (e *existingInstallation) apply(t *testing.T, cluster, file string) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	replaced := strings.NewReplacer("THE-PORT", strconv.Itoa(e.port), "THE-MODE", cluster, "THE-HUB", formerHub).Replace(string(manifest))
	if err := e.Cluster(cluster).Apply(t.Context(), replaced); err != nil {
		t.Fatal(err)
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// newCA creates the CA of the existing installation: an RSA key.
func (e *existingInstallation) newCA(t *testing.T) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "argocd-agent-ca", Organization: []string{"DO NOT USE IN PRODUCTION"}}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if e.ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	e.caKey = key
	e.create(t, "hub", "argocd-agent-ca", corev1.SecretTypeTLS, nil, map[string][]byte{"tls.crt": encode("CERTIFICATE", der), "tls.key": encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))})
}

// issue creates a Secret with a certificate.
func (e *existingInstallation) issue(t *testing.T, cluster, secret, name string) (cert, key []byte) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(1, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost", "argocd-agent-resource-proxy"}}, e.ca, private.Public(), e.caKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = encode("CERTIFICATE", der), encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(private))
	e.create(t, cluster, secret, corev1.SecretTypeTLS, nil, map[string][]byte{"tls.crt": cert, "tls.key": key})
	return cert, key
}

func (e *existingInstallation) create(t *testing.T, cluster, name string, kind corev1.SecretType, labels map[string]string, data map[string][]byte) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Type: kind, Data: data}
	if _, err := e.Cluster(cluster).Client().CoreV1().Secrets(lab.ArgoCDNamespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

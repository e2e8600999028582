package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/lab"
)

// inLab returns a script that runs against real API servers, in its own namespace.
func inLab(t *testing.T, namespace string) (*script, *lab.Lab) {
	t.Helper()
	l := lab.Get(t)
	crd, err := os.ReadFile("../../install/crds/agents.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Hub().Apply(t.Context(), string(crd)); err != nil {
		t.Fatal(err)
	}
	s := &script{t: t, env: append(l.Environment(), "HOME=/nonexistent", "ARGOCD_AGENT_PRINCIPAL_CONTEXT=hub", "ARGOCD_AGENT_PRINCIPAL_NAMESPACE="+namespace,
		"ARGOCD_AGENT_AGENT_CONTEXT=managed", "ARGOCD_AGENT_AGENT_NAMESPACE="+namespace),
		commands: map[string]func(string) string{}, replace: map[string]string{}}
	for _, name := range []string{"hub", "managed"} {
		empty(t, l.Cluster(name), namespace)
	}
	s.commands["status"] = func(argument string) string {
		name, status, _ := strings.Cut(argument, " ")
		patch(t, l.Hub(), agentResource, namespace, name, `{"status":`+status+`}`, "status")
		return ""
	}
	s.commands["apply"] = func(argument string) string {
		name, file, _ := strings.Cut(argument, " ")
		manifest, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		lab.Await(t, file+" to be applied", func(ctx context.Context) error {
			return l.Cluster(name).Apply(ctx, strings.ReplaceAll(string(manifest), "NAMESPACE", namespace))
		})
		return ""
	}
	return s, l
}

// empty creates a namespace or deletes its content.
func empty(t *testing.T, c *lab.Cluster, namespace string) {
	t.Helper()
	ctx := t.Context()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}}
	_, err := c.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(ctx, u, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, resource := range []schema.GroupVersionResource{agentResource, {Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "services"}, {Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "pods"},
		{Version: "v1", Resource: "serviceaccounts"}, {Group: "apps", Version: "v1", Resource: "deployments"},
		{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}, {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
		{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}, {Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}} {
		err := c.Dynamic().Resource(resource).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

func patch(t *testing.T, c *lab.Cluster, resource schema.GroupVersionResource, namespace, name, change string, sub ...string) {
	t.Helper()
	if !json.Valid([]byte(change)) {
		t.Fatalf("invalid JSON: %s", change)
	}
	if _, err := c.Dynamic().Resource(resource).Namespace(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(change), metav1.PatchOptions{}, sub...); err != nil {
		t.Fatal(err)
	}
}

func TestAgent_Transcript(t *testing.T) {
	s, _ := inLab(t, "cli-agents")
	s.replace[`"?(creationTimestamp|uid|resourceVersion)"?: .*`] = "$1: …"
	s.replace[`go1\.\S+ for \S+`] = "GO"
	s.replace[`(goVersion|platform): .*`] = "$1: …"
	s.play("agent.txt")
}

func TestPKI_Transcript(t *testing.T) {
	s, l := inLab(t, "cli-pki")
	s.commands["recorded"] = func(name string) string { return recorded(t, l.Hub(), "cli-pki", name) }
	s.replace[`OU=[-_A-Za-z0-9]{8}`] = "OU=…"
	s.replace[`(?s)-----BEGIN ([A-Z ]+)-----.*?-----END [A-Z ]+-----`] = "PEM $1"
	s.play("pki.txt")
}

// recorded returns the expiry of each certificate that an Agent records.
func recorded(t *testing.T, hub *lab.Cluster, namespace, name string) string {
	t.Helper()
	agent, err := hub.Dynamic().Resource(agentResource).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, of := range []struct{ title, annotation string }{{"agent", v1alpha1.IssuedAnnotation}, {"proxy", v1alpha1.IssuedProxyAnnotation}} {
		for _, entry := range pki.ParseRecord(agent.GetAnnotations()[of.annotation]) {
			out.WriteString(of.title + " " + entry.Expires.UTC().Format("2006-01-02 15:04") + "\n")
		}
	}
	return out.String()
}

func TestJoinToken_Transcript(t *testing.T) {
	s, l := inLab(t, "cli-join")
	s.replace[`join://(\S+)/[-_A-Za-z0-9]{43}/[a-z2-7]{8}\.[-_A-Za-z0-9]+`] = "join://$1/PIN/ID.SECRET"
	s.replace[`-data: [A-Za-z0-9+/=]{30,}`] = "-data: …"
	s.commands["recorded"] = func(name string) string { return recorded(t, l.Hub(), "cli-join", name) }
	services := schema.GroupVersionResource{Version: "v1", Resource: "services"}
	s.commands["balance"] = func(ip string) string {
		patch(t, l.Hub(), services, "cli-join", "argocd-agent-principal", `{"status":{"loadBalancer":{"ingress":[{"ip":"`+ip+`"}]}}}`, "status")
		return ""
	}
	s.play("join-token.txt")
}

func TestPending_Transcript(t *testing.T) {
	s, l := inLab(t, "cli-pending")
	s.replace[`"since": "20[^"]*"`] = `"since": "…"`
	apps := l.Hub().Dynamic().Resource(schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}).Namespace("cli-pending")
	s.commands["delete"] = func(name string) string {
		if err := apps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		return ""
	}
	t.Cleanup(func() { removeFinalizers(t, l.Hub(), "cli-pending", "deleting") })
	s.commands["confirmed"] = func(name string) string {
		agent, err := l.Hub().Dynamic().Resource(agentResource).Namespace("cli-pending").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return agent.GetAnnotations()[v1alpha1.ConfirmAnnotation] + "\n"
	}
	s.commands["annotated"] = func(string) string {
		hold, err := l.Hub().Client().CoreV1().ConfigMaps("cli-pending").Get(t.Context(), v1alpha1.FleetHold, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return hold.Annotations[v1alpha1.ConfirmAnnotation] + "\n"
	}
	s.play("pending.txt")
}

// removeFinalizers lets the API server delete an Application.
func removeFinalizers(t *testing.T, c *lab.Cluster, namespace, name string) {
	t.Helper()
	apps := c.Dynamic().Resource(schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}).Namespace(namespace)
	_, err := apps.Patch(context.Background(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// The cluster of the autonomous agent is the second hub here.
func TestHub_Transcript(t *testing.T) {
	s, l := inLab(t, "cli-hub")
	second := l.Cluster("autonomous")
	crd, err := os.ReadFile("../../install/crds/agents.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Apply(t.Context(), string(crd)); err != nil {
		t.Fatal(err)
	}
	empty(t, second, "cli-hub")
	lost := filepath.Join(t.TempDir(), "lost")
	if err := os.WriteFile(lost, []byte("{apiVersion: v1, kind: Config, clusters: [{name: lost, cluster: {server: 'https://127.0.0.1:1'}}], contexts: [{name: lost, context: {cluster: lost}}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, variable := range s.env {
		if strings.HasPrefix(variable, "KUBECONFIG=") {
			s.env[i] += string(filepath.ListSeparator) + lost
		}
	}
	s.names = map[string]string{}
	for name, c := range map[string]*lab.Cluster{"UID-OF-HUB": l.Hub(), "UID-OF-SECOND": second} {
		system, err := c.Client().CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.names[name] = string(system.UID)
	}
	s.replace[`(UID-OF-\S+/\d+ +)\d+`] = "${1}N"
	s.replace[`"lag": \d+`] = `"lag": N`
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	s.commands["data"] = func(argument string) string {
		name, change, _ := strings.Cut(argument, " ")
		patch(t, l.Cluster(name), configMaps, "cli-hub", "argocd-agent-hub", `{"data":`+change+`}`)
		return ""
	}
	s.commands["received"] = func(argument string) string {
		name, at, _ := strings.Cut(argument, " ")
		patch(t, l.Cluster(name), configMaps, "cli-hub", "argocd-agent-hub", `{"metadata":{"annotations":{"argocd-agent.argoproj-labs.io/received-at":"`+at+`"}}}`)
		return ""
	}
	s.commands["edit"] = func(argument string) string {
		parts := strings.SplitN(argument, " ", 4)
		patch(t, l.Cluster(parts[0]), schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: parts[1]}, "cli-hub", parts[2], parts[3])
		return ""
	}
	s.commands["remove"] = func(argument string) string {
		parts := strings.SplitN(argument, " ", 3)
		r := l.Cluster(parts[0]).Dynamic().Resource(schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: parts[1]})
		if err := r.Namespace("cli-hub").Delete(t.Context(), parts[2], metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		return ""
	}
	s.commands["replicate"] = func(argument string) string {
		active, standby, _ := strings.Cut(argument, " ")
		replicateHub(t, l.Cluster(active), l.Cluster(standby), "cli-hub")
		return ""
	}
	s.commands["copy-ca"] = func(string) string {
		ca, err := l.Hub().Client().CoreV1().Secrets("cli-hub").Get(t.Context(), pki.AuthoritySecret, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ca.ObjectMeta = metav1.ObjectMeta{Name: ca.Name, Labels: ca.Labels, Annotations: ca.Annotations}
		if _, err := second.Client().CoreV1().Secrets("cli-hub").Create(t.Context(), ca, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		return ""
	}
	s.play("hub.txt")
}

// replicateHub writes the objects of an active hub to its standby, as their principals do.
func replicateHub(t *testing.T, active, standby *lab.Cluster, namespace string) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	from, err := kube.NewClient(active.Admin())
	must(err)
	to, err := kube.NewClient(standby.Admin())
	must(err)
	state, _, err := hubstate.Read(ctx, from, namespace, "")
	must(err)
	env := kind.Env{Agent: kind.Agent{Mode: kind.Standby}, HubArgoNamespace: namespace, SpokeArgoNamespace: namespace, PKINamespace: namespace, PrincipalUID: state.Identity}
	owner, replica := env, env
	owner.Side, replica.Side = kind.Hub, kind.Spoke
	for _, k := range kind.StandbyKinds() {
		objects, err := from.List(ctx, kube.Watch{Resource: k.Resource(), Namespace: namespace})
		must(err)
		for _, o := range objects {
			item, ok := k.Publish(o, &owner)
			if !ok {
				continue
			}
			ref, err := k.Target(item.Key, &replica)
			must(err)
			local, err := to.Get(ctx, ref)
			must(err)
			merged, err := k.Merge(local, item.Key, item.Content, nil, kind.Ownership{Owned: true}, &replica)
			must(err)
			if local == nil {
				_, err = to.Create(ctx, ref, json.RawMessage(merged.Raw()))
			} else {
				_, err = to.Update(ctx, ref, merged)
			}
			must(err)
		}
	}
}

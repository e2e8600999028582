package e2e

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/install"
	"github.com/argocd-agent/argocd-agent/lab"
)

// notSeen are permissions whose use this test cannot cause at will.
var notSeen = map[string]string{
	"get configmaps":                    "the hold on many agents is read before it is recorded (fleet.Hold)",
	"get appprojects.argoproj.io":       "an AppProject is read again after a failed write",
	"get applicationsets.argoproj.io":   "an ApplicationSet is read while the agent of its Applications is disconnected (TestDestinationMapping)",
	"create events":                     "an Event is created if a key was cloned (TestAgentCertificate_JoinRenewRevoke)",
	"patch events":                      "Events of Applications come from an application controller, which this lab does not run (TestEvents_OfAgentsApplicationsShowOnHub)",
	"create leases.coordination.k8s.io": "a server-side apply that creates an object needs it and is logged as patch",
}

// TestPrincipal_Permissions uses one bare lab for all parts.
func TestPrincipal_Permissions(t *testing.T) {
	t.Parallel()
	w := newEnv(t, setup{lab: lab.New(t, lab.Options{Bare: true, Audited: true, Spokes: []lab.Spoke{{Name: "autonomous", Role: lab.Autonomous}}})})
	t.Cleanup(w.close)
	w.principal.args = onlySecrets(w.principal.args)
	a := w.addAgent(t, agentSetup{name: "w1", cluster: "autonomous", mode: "autonomous"})
	a.args = onlySecrets(a.args)
	t.Run("every permission is used", func(t *testing.T) { everyPermissionIsUsed(t, w, a) })
	t.Run("roles in namespaces are enough", func(t *testing.T) { rolesInNamespaces(t, w) })
	t.Run("certificates can be in another namespace", func(t *testing.T) { certificatesElsewhere(t, w, a) })
}

// rolesInNamespaces runs the principal without a ClusterRole for Applications. Without its Role, a namespace is not empty.
func rolesInNamespaces(t *testing.T, w *testEnv) {
	t.Helper()
	manifest := func(name string) string {
		text, err := os.ReadFile("../../install/kustomize/principal/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	apply := func(text string) {
		t.Helper()
		if err := w.hub.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	rbac := w.hub.Client().RbacV1()
	if err := rbac.ClusterRoleBindings().Delete(t.Context(), "argocd-agent-principal-all-namespaces", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a := w.addAgent(t, agentSetup{name: "w2", cluster: "autonomous", mode: "managed"})
	a.args = onlySecrets(a.args)
	roles := strings.ReplaceAll(manifest("rbac-namespaced.yaml"), "namespace: w1", "namespace: w2")
	apply(roles)
	before := w.principal.args
	w.principal.args = append(slices.Clone(before), "--namespaced", "--allowed-namespaces", "w2")
	log, err := os.Stat(w.hub.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	w.principal.start(t)
	await(t, "the principal to read its namespace", func() error { return healthy(w.health) })
	a.give(t, w.hub.ctl(t, "agent", "join-token", "w2", "--mode", "managed", "--address", a.link.Addr(), "-o", "name"))
	a.start(t)
	a.connected(t)
	app, replica := w.hub.app("w2", "used"), a.spoke.app(lab.ArgoCDNamespace, "used")
	app.create(t, simple("w2"))
	uid := replica.becomes(t).GetUID()
	app.edit(t, func(u *unstructured.Unstructured) { setLabel(u, "team", "x") })
	replica.becomes(t, label("team", "x"))
	w.hub.ctl(t, "agent", "create", "elsewhere", "--mode", "managed")
	w.hub.agent("elsewhere").becomes(t, func(u *unstructured.Unstructured) error {
		if text := string(toJSON(t, u.Object)); !strings.Contains(text, "does not read namespace elsewhere") {
			return errors.New(text)
		}
		return nil
	})

	w.principal.terminate(t)
	if err := rbac.RoleBindings("w2").Delete(t.Context(), "argocd-agent-principal-applications", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.principal.start(t)
	await(t, "the principal to report the namespace", func() error {
		if err := healthy(w.health); err == nil || !strings.Contains(err.Error(), "cannot read applications in namespace w2") {
			return fmt.Errorf("it reports: %w", cmp.Or(err, errors.New("nothing")))
		}
		return nil
	})
	w.hub.project("later").create(t, projectOf("w2"))
	a.spoke.project("later").becomes(t) // in a session of the new principal
	if now := replica.get(t); now.GetUID() != uid || now.GetDeletionTimestamp() != nil {
		t.Errorf("the Application was removed: %v", now)
	}
	apply(roles)
	await(t, "the principal to read its namespace again", func() error { return healthy(w.health) })
	app.edit(t, func(u *unstructured.Unstructured) { setLabel(u, "team", "y") })
	replica.becomes(t, label("team", "y"))
	if now := replica.get(t); now.GetUID() != uid {
		t.Error("the Application was replaced")
	}
	app.delete(t)
	replica.goes(t)
	w.principal.terminate(t)
	a.kill(t)
	a.spoke.secret("argocd-agent-client-tls").delete(t)
	w.principal.args = before
	apply(manifest("rbac-all-namespaces.yaml"))

	used := 0
	for _, r := range auditedRequests(t, w.hub.AuditLog, w.hub.RunAs.User, log.Size()) {
		if r.ObjectRef.Resource == "applications" {
			used++
		}
		if o := r.ObjectRef; o.Resource == "applications" && o.Namespace != "w2" || o.Namespace == "" && !slices.Contains([]string{"kube-system", "agents.argocd-agent.argoproj-labs.io"}, o.Name) && o.Resource != "customresourcedefinitions" {
			t.Errorf("%s %s in namespace %q, name %q", r.Verb, o.Resource, o.Namespace, o.Name)
		}
	}
	if used == 0 {
		t.Error("no requests for Applications were logged")
	}
}

// certificatesElsewhere moves CA, certificates and join tokens to a namespace of their own.
func certificatesElsewhere(t *testing.T, w *testEnv, a *agent) {
	t.Helper()
	const namespace = "argocd-agent-pki"
	w.hub.ensureNamespace(t, namespace)
	rules, err := os.ReadFile("../../install/kustomize/principal/rbac-pki-namespace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.hub.Apply(t.Context(), string(rules)); err != nil {
		t.Fatal(err)
	}
	of := func(in string) (names []string) {
		list, err := w.hub.Client().CoreV1().Secrets(in).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Items {
			if strings.HasPrefix(s.Name, "argocd-agent-") {
				names = append(names, s.Name)
			}
		}
		return names
	}
	for _, name := range of(lab.ArgoCDNamespace) { // of the principal before
		w.hub.secret(name).delete(t)
	}
	w.principal.args = append(w.principal.args, "--pki-namespace", namespace)
	w.principal.start(t)
	await(t, "the principal to have made its certificates", func() error { return healthy(w.health) })
	a.give(t, w.hub.ctl(t, "agent", "join-token", "w1", "--mode", "autonomous", "--address", a.link.Addr(), "-o", "name", "--pki-namespace", namespace))
	a.start(t)
	a.connected(t)
	if names := of(lab.ArgoCDNamespace); len(names) > 0 {
		t.Errorf("in the namespace of Argo CD: %v", names)
	}
	if names := of(namespace); !slices.Contains(names, "argocd-agent-ca") || len(names) < 3 {
		t.Errorf("in %s: %v", namespace, names)
	}
	if out := w.hub.ctl(t, "pki", "inspect", "--pki-namespace", namespace); !strings.Contains(out, "argocd-agent-ca") {
		t.Errorf("pki inspect: %s", out)
	}
	w.hub.agent("w1").delete(t) // with its join tokens
	w.hub.agent("w1").goes(t)
	if names := of(namespace); slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "join") }) {
		t.Errorf("the join token of a deleted agent stays: %v", names)
	}
}

// everyPermissionIsUsed lets a principal do everything that needs a permission, with an API server that logs
// its requests. The installed role grants nothing else, and nothing is denied.
func everyPermissionIsUsed(t *testing.T, w *testEnv, a *agent) {
	t.Helper()
	w.principal.start(t)
	await(t, "the principal to have made its certificates", func() error { return healthy(w.health) })
	for range 2 { // the first deletion of an Agent creates the blocklist, the second changes it
		a.give(t, w.hub.ctl(t, "agent", "join-token", "w1", "--mode", "autonomous", "--address", a.link.Addr(), "-o", "name"))
		a.start(t)
		a.connected(t)
		own, project := a.spoke.project("used"), w.hub.project("w1-used")
		own.create(t, projectOf("in-cluster"))
		project.becomes(t)
		own.edit(t, func(u *unstructured.Unstructured) { set(u, "spec.description", "changed") })
		project.becomes(t, field("spec.description", "changed"))
		app := a.spoke.app(lab.ArgoCDNamespace, "used")
		app.create(t, simple("in-cluster"))
		w.hub.app("w1", "used").becomes(t)
		app.edit(t, func(u *unstructured.Unstructured) { setLabel(u, "team", "x") })
		w.hub.app("w1", "used").becomes(t, label("team", "x"))
		app.delete(t)
		w.hub.app("w1", "used").goes(t)
		own.delete(t)
		project.goes(t)
		w.hub.agent("w1").delete(t)
		w.hub.agent("w1").goes(t)
		a.kill(t)
		a.spoke.secret("argocd-agent-client-tls").delete(t)
	}
	// An Application of a cluster that is gone is finalized on the hub.
	w.hub.ctl(t, "agent", "create", "gone", "--mode", "managed")
	w.hub.ensureNamespace(t, "gone")
	orphan := w.hub.app("gone", "orphan")
	object := simple("gone")
	object["metadata"] = map[string]any{"finalizers": []any{"resources-finalizer.argocd.argoproj.io"}}
	orphan.create(t, object)
	orphan.delete(t)
	w.hub.agent("gone").patch(t, `{"metadata":{"annotations":{"argocd-agent.argoproj-labs.io/retire":"true"}}}`)
	orphan.goes(t)
	w.principal.terminate(t)

	used, denied := requestsOf(t, w.hub.AuditLog, w.hub.RunAs.User)
	for request := range denied {
		t.Errorf("denied: %s", request)
	}
	text, err := install.RBAC("principal")
	if err != nil {
		t.Fatal(err)
	}
	granted := map[string]bool{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var role rbacv1.ClusterRole // a Role has the same form
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				resource, sub, _ := strings.Cut(resource, "/")
				for _, verb := range rule.Verbs {
					granted[requestName(verb, resource, rule.APIGroups[0], sub)] = true
				}
			}
		}
	}
	if len(granted) < 20 || len(used) < 20 {
		t.Fatalf("%d permissions, %d requests", len(granted), len(used))
	}
	for _, one := range slices.Sorted(maps.Keys(granted)) {
		if _, ok := notSeen[one]; !used[one] && !ok {
			t.Errorf("granted, but not used: %s", one)
		}
	}
}

func requestName(verb, resource, group, sub string) string {
	if group != "" {
		resource += "." + group
	}
	if sub != "" {
		resource += "/" + sub
	}
	return verb + " " + resource
}

// requestsOf returns the requests of a user in the audit log of an API server.
func requestsOf(t *testing.T, file, user string) (used, denied map[string]bool) {
	t.Helper()
	used, denied = map[string]bool{}, map[string]bool{}
	for _, event := range auditedRequests(t, file, user, 0) {
		o := event.ObjectRef
		name := requestName(event.Verb, o.Resource, o.APIGroup, o.Subresource)
		used[name] = true
		if event.ResponseStatus.Code == 403 {
			denied[fmt.Sprintf("%s %s/%s", name, o.Namespace, o.Name)] = true
		}
	}
	return used, denied
}

// auditedRequest is a request for a resource in the audit log of an API server.
type auditedRequest struct {
	Verb           string
	User           struct{ Username string }
	ObjectRef      *struct{ Resource, APIGroup, Subresource, Namespace, Name string }
	ResponseStatus struct{ Code int }
}

// auditedRequests returns the requests of a user in the audit log of an API server, from a position in the file on.
func auditedRequests(t *testing.T, file, user string, from int64) (out []auditedRequest) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event auditedRequest
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		if event.User.Username == user && event.ObjectRef != nil {
			out = append(out, event)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

package fleet

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

// stored is what an API server makes of what is applied to a Secret that has
// more.
func stored(t *testing.T, manifest map[string]any, change func(labels, annotations map[string]string, data map[string][]byte)) clusterSecret {
	t.Helper()
	b, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		Metadata struct {
			Name, Namespace     string
			Labels, Annotations map[string]string
		}
		Data map[string][]byte
	}
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	change(o.Metadata.Labels, o.Metadata.Annotations, o.Data)
	return readSecret(parsed(t, map[string]any{"metadata": map[string]any{"name": o.Metadata.Name, "namespace": o.Metadata.Namespace, "resourceVersion": "1",
		"labels": o.Metadata.Labels, "annotations": o.Metadata.Annotations}, "data": o.Data}))
}

func TestDesiredSecret_MatchesOnlyCompleteSecret(t *testing.T) {
	rec := agentRecord{Agent: agent("a", 1, "managed", func(a *v1alpha1.Agent) {
		a.Spec.Cluster = v1alpha1.ClusterSecret{Labels: map[string]string{"env": "prod"}, Annotations: map[string]string{"note": "x"}}
	})}
	w := newDesiredSecret(rec, nil, "https://proxy?agentName=a", true)
	manifest, err := w.manifest("argocd", "cluster-a", nil, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		change func(labels, annotations map[string]string, data map[string][]byte)
		right  bool
	}{
		{"as written", func(_, _ map[string]string, _ map[string][]byte) {}, true},
		{"with a label of a user", func(l, _ map[string]string, _ map[string][]byte) { l["theirs"] = "1" }, true},
		{"with another config", func(_, _ map[string]string, d map[string][]byte) { d["config"] = []byte(`{"x":1}`) }, true},
		{"without a config", func(_, _ map[string]string, d map[string][]byte) { delete(d, "config") }, false},
		{"without a label", func(l, _ map[string]string, _ map[string][]byte) { delete(l, "env") }, false},
		{"with another value of a label", func(l, _ map[string]string, _ map[string][]byte) { l["env"] = "test" }, false},
		{"without an annotation", func(_, a map[string]string, _ map[string][]byte) { delete(a, "argocd.argoproj.io/skip-reconcile") }, false},
		{"without our mark", func(_, a map[string]string, _ map[string][]byte) { delete(a, derivedAnnotation) }, false},
		{"with another server", func(_, _ map[string]string, d map[string][]byte) { d["server"] = []byte("https://x") }, false},
		{"with another name", func(_, _ map[string]string, d map[string][]byte) { d["name"] = []byte("x") }, false},
	} {
		if got := w.matches(stored(t, manifest, c.change)); got != c.right {
			t.Errorf("%s: right %v, want %v", c.what, got, c.right)
		}
	}
	// A value that is no longer desired does not match.
	rec.Spec.Cluster.Labels = nil
	if newDesiredSecret(rec, nil, "https://proxy?agentName=a", true).matches(stored(t, manifest, func(_, _ map[string]string, _ map[string][]byte) {})) {
		t.Error("a label that was taken out of the Agent stays")
	}
}

func TestDesiredSecret_BackupRestoresAgent(t *testing.T) {
	rec := agentRecord{Agent: agent("a", 1, "autonomous", inNamespace("there"), ofCluster("u1"), func(a *v1alpha1.Agent) {
		a.Spec.Cluster.Labels = map[string]string{"env": "prod"}
		a.Spec.Suspended = true
	})}
	w := newDesiredSecret(rec, nil, "https://proxy?agentName=a", true)
	manifest, err := w.manifestWithBackup("argocd", rec, secret(t, "cluster-a", "a", 1, "made-by", "principal"), []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	s := stored(t, manifest, func(_, _ map[string]string, _ map[string][]byte) {})
	a, err := s.toAgent("argocd")
	if err != nil || s.derived() || !s.createdByPrincipal() || a.Name != "a" || a.Spec.Mode != "autonomous" || a.Spec.Namespace != "there" || a.Spec.Cluster.Labels["env"] != "prod" || !a.Spec.Suspended || a.Status.ClusterUID != "u1" {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestDesiredSecret_DeclaredLabelsDoNotChangeAgent(t *testing.T) {
	rec := agentRecord{Agent: agent("a", 1, "managed", func(a *v1alpha1.Agent) {
		a.Spec.Cluster = v1alpha1.ClusterSecret{Labels: map[string]string{AgentLabel: "b", "argocd.argoproj.io/secret-type": "repository"},
			Annotations: map[string]string{"argocd.argoproj.io/skip-reconcile": "false"}}
	})}
	w := newDesiredSecret(rec, nil, "x", true)
	if w.Labels[AgentLabel] != "a" || w.Labels["argocd.argoproj.io/secret-type"] != "cluster" || w.Annotations["argocd.argoproj.io/skip-reconcile"] != "true" {
		t.Errorf("%+v", w)
	}
	if rec.Spec.Cluster.Labels[AgentLabel] != "b" {
		t.Error("what is declared was changed")
	}
}

// What is marked as self-registered is the principal's, and is deleted with the
// Agent.
func TestDesiredSecret_UserSecretIsNotMarkedAsOurs(t *testing.T) {
	d := newTestRegistry(t)
	k := newTestReconciler(t, d, nil)
	selfRegistered := map[string]string{selfRegisteredLabel: "true"}
	for title, test := range map[string]struct {
		agent, declared map[string]string
		there           clusterSecret
		made            bool
	}{
		"a new one":                    {agent: selfRegistered, made: true},
		"a new one of another's Agent": {},
		"one that we made":             {agent: selfRegistered, there: clusterSecret{name: "x", annotations: map[string]string{createdByAnnotation: "principal"}}, made: true},
		"one from before":              {agent: selfRegistered, there: clusterSecret{name: "x", labels: selfRegistered}, made: true},
		"a user's":                     {agent: selfRegistered, there: clusterSecret{name: "x"}},
		"a user's, by declaration":     {declared: selfRegistered, there: clusterSecret{name: "x"}},
	} {
		rec := agentRecord{Agent: agent("a", 1, "managed", func(a *v1alpha1.Agent) { a.Labels, a.Spec.Cluster.Labels = test.agent, test.declared })}
		if _, marked := k.desiredSecret(rec, test.there).Labels[selfRegisteredLabel]; marked != test.made {
			t.Errorf("%s: marked as ours: %v", title, marked)
		}
	}
}

func TestClusterSecret_ClaimableOnlyByItsAgent(t *testing.T) {
	for title, test := range map[string]struct {
		label, cluster string
		derived, free  bool
	}{
		"its own":                       {label: "a", cluster: "a", derived: true, free: true},
		"its own, not taken over yet":   {label: "a", cluster: "prod", free: true},
		"its own, with a label removed": {cluster: "a", derived: true, free: true},
		"its own, with a label changed": {label: "b", cluster: "a", derived: true, free: true},
		"one that was given back":       {cluster: "", derived: true, free: true},
		"another agent's":               {label: "b", cluster: "b", derived: true},
		"another agent's, not yet":      {label: "b", cluster: "b"},
		"without owner":                 {cluster: "a"},
	} {
		s := clusterSecret{name: defaultSecretName("a"), agent: test.label, cluster: test.cluster, annotations: map[string]string{}}
		if test.derived {
			s.annotations[derivedAnnotation] = "x"
		}
		if s.claimableBy("a") != test.free {
			t.Errorf("%s: %v", title, !test.free)
		}
	}
}

func TestClusterSecret_ToAgent(t *testing.T) {
	s := readSecret(secret(t, "cluster-a", "a", 1, "mode", "autonomous", "hub-namespace", "there", "cluster-uid", "u1", "seen-store", "u1/77"))
	a, err := s.toAgent("argocd")
	if err != nil || s.derived() || s.createdByPrincipal() {
		t.Fatalf("%v, derived %v, made %v", err, s.derived(), s.createdByPrincipal())
	}
	if a.Name != "a" || a.Namespace != "argocd" || a.Spec.Mode != "autonomous" || a.Spec.Namespace != "there" || a.Status.ClusterUID != "u1" ||
		*a.Status.Store != (v1alpha1.Store{UID: "u1", Revision: 77}) {
		t.Errorf("%+v", a)
	}
	for _, c := range []struct{ annotations []string }{{[]string{"mode", "typo"}}, {[]string{"hub-namespace", "a/../b"}}} {
		if _, err := readSecret(secret(t, "cluster-a", "a", 1, c.annotations...)).toAgent("argocd"); err == nil || !strings.Contains(err.Error(), c.annotations[0]) {
			t.Errorf("%v: %v", c.annotations, err)
		}
	}
	if _, err := readSecret(secret(t, "cluster-a", "a--b", 1)).toAgent("argocd"); err == nil {
		t.Error("a name that cannot be an agent's")
	}
	if a, err := readSecret(secret(t, "cluster-a", "a", 1, "hub-namespace", "a", "seen-store", "nonsense")).toAgent("argocd"); err != nil || a.Spec.Namespace != "" || a.Status.Store != nil {
		t.Errorf("%+v, %v", a, err)
	}
}

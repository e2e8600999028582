package sim

import (
	"strconv"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

var banners = kind.Resource{Group: "example.io", Version: "v1", Plural: "banners", Kind: "Banner"}

// bannerKind is a kind that the product does not have: the hub sends Banners in Argo CD's namespace to managed agents.
// Only .spec is replicated.
type bannerKind struct{}

func (bannerKind) Scope() string             { return "banner" }
func (bannerKind) Resource() kind.Resource   { return banners }
func (bannerKind) Traits() kind.Traits       { return kind.Traits{Name: "banners", ManagedOnly: true} }
func (bannerKind) Matches(*kind.Object) bool { return true }

func bannerNamespace(w *kind.Env) string {
	if w.Side == kind.Hub {
		return w.HubArgoNamespace
	}
	return w.SpokeArgoNamespace
}

func bannerContent(o *kind.Object, uid string) []byte {
	var content rawjson.Object
	content.Set("spec", o.Get("spec"))
	content.Set("uid", rawjson.Quote(uid))
	canonical, err := rawjson.Canonical(content.Bytes())
	if err != nil {
		return nil
	}
	return canonical
}

func (bannerKind) Key(o *kind.Object, w *kind.Env) (engine.Key, bool) {
	return engine.Key{Name: o.Name()}, o.Namespace() == bannerNamespace(w)
}

func (k bannerKind) Publish(o *kind.Object, w *kind.Env) (kind.Item, bool) {
	key, ok := k.Key(o, w)
	return kind.Item{Key: key, Content: bannerContent(o, o.UID())}, ok && !o.IsDeleting()
}

func (k bannerKind) ReadReplica(o *kind.Object, w *kind.Env) (kind.ReplicaItem, bool) {
	key, ok := k.Key(o, w)
	own := kind.ReadOwnership(o, w)
	return kind.ReplicaItem{Key: key, Content: bannerContent(o, own.Source), Ownership: own}, ok
}

func (bannerKind) Target(k engine.Key, w *kind.Env) (kind.Ref, error) {
	return kind.Ref{Resource: banners, Namespace: bannerNamespace(w), Name: k.Name}, nil
}

func (bannerKind) Merge(local *kind.Object, k engine.Key, content, _ []byte, own kind.Ownership, w *kind.Env) (*kind.Object, error) {
	t := tree{"apiVersion": "example.io/v1", "kind": "Banner", "metadata": tree{"namespace": bannerNamespace(w), "name": k.Name}}
	if local != nil {
		t = decode(local)
	}
	metadata := t["metadata"].(tree)
	annotations, ok := metadata["annotations"].(tree)
	if !ok {
		annotations = tree{}
	}
	annotations[kind.SourceUID], annotations[kind.PrincipalUID] = kind.ContentUID(content), w.PrincipalUID
	annotations[kind.SourceRevisionAnnotation] = strconv.FormatUint(own.SourceRevision, 10)
	metadata["annotations"] = annotations
	raw, err := rawjson.Set(encode(t).Raw(), rawjson.Get(content, "spec"), "spec")
	if err != nil {
		return nil, err
	}
	return kind.Parse(raw)
}

func (bannerKind) Release(o *kind.Object, _ *kind.Env) *kind.Object { return o }
func (bannerKind) Keeps(*kind.Object) bool                          { return false }

// A kind is one type: nothing else in the product has to know it.
func TestExampleKind_IsReplicated(t *testing.T) {
	w := newWorld(1, shape{kinds: []kind.Kind{bannerKind{}}, sent: func(r kind.Ref) bool { return r.Resource == banners }, replicas: 1, mapping: kind.ByNamespace, steady: true, agents: []agentShape{
		{name: "a", mode: kind.Managed, hubNamespace: "a", argo: "argocd"},
		{name: "b", mode: kind.Autonomous, hubNamespace: "b", argo: "argocd"},
	}})
	w.begin()
	run := func(d engine.Time) {
		t.Helper()
		w.run(w.now + d)
		for _, v := range w.violations {
			t.Fatalf("violation: %s", v)
		}
	}
	run(30 * second)

	managed, autonomous := w.spokeOf("a").cluster, w.spokeOf("b").cluster
	banner := func(name, text string) tree {
		return tree{"apiVersion": "example.io/v1", "kind": "Banner", "metadata": tree{"namespace": w.hub.argo, "name": name}, "spec": tree{"text": text}}
	}
	expect := func(what, name, text string) {
		t.Helper()
		run(minute)
		got := ""
		if o := managed.st.get(ref(banners, managed.argo, name)); o != nil {
			got = rawjson.Text(o.Get("spec"), "text")
		}
		if got != text {
			t.Errorf("%s: the managed cluster has %q, not %q", what, got, text)
		}
		if n := len(autonomous.st.list(banners)); n != 0 {
			t.Errorf("%s: the autonomous cluster has %d Banners", what, n)
		}
	}
	for _, name := range []string{"one", "two", "three"} { // the deletion budget keeps the last of a scope
		w.hub.create(userName, banners, banner(name, "v1"))
	}
	expect("created on the hub", "one", "v1")
	w.hub.edit(userName, ref(banners, w.hub.argo, "one"), func(t tree) { t["spec"] = tree{"text": "v2"} })
	expect("edited on the hub", "one", "v2")
	managed.edit(spokeUser, ref(banners, managed.argo, "one"), func(t tree) { t["spec"] = tree{"text": "local"} })
	expect("edited on the workload cluster", "one", "v2")
	managed.remove(spokeUser, ref(banners, managed.argo, "one"))
	expect("deleted on the workload cluster", "one", "v2")
	w.hub.remove(userName, ref(banners, w.hub.argo, "one"))
	expect("deleted on the hub", "one", "")
	expect("others stay", "two", "v1")
}

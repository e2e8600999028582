package kind

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// values draws JSON that this build has never heard of, written in odd ways.
func values(depth int) *rapid.Generator[string] {
	leaf := rapid.SampledFrom([]string{`null`, `true`, `0`, `1.0`, `-1e3`, `""`, `"x"`, `"\u0041\n<>"`, `{}`, `[]`, ` "y" `})
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(leaf, rapid.Custom(func(t *rapid.T) string {
		inner := rapid.SliceOfN(values(depth-1), 0, 3).Draw(t, "inner")
		var b bytes.Buffer
		if rapid.Bool().Draw(t, "list") {
			b.WriteString("[")
			for i, v := range inner {
				if i > 0 {
					b.WriteString(" ,")
				}
				b.WriteString(v)
			}
			return b.String() + "]"
		}
		b.WriteString("{")
		for i, v := range inner {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, `"k%d": %s`, 9-i, v)
		}
		return b.String() + "}"
	}))
}

// texts draws labels or annotations, some of them of the kind that never
// crosses.
func texts() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var o rawjson.Object
		for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{
			"a", "b", "c", "team", "app.kubernetes.io/instance", "argocd.argoproj.io/refresh", "argocd.argoproj.io/tracking-id",
			"kubectl.kubernetes.io/last-applied-configuration", "notified.notifications.argoproj.io", "argocd-agent.argoproj-labs.io/last-command",
		}), rapid.ID[string]).Draw(t, "keys") {
			o.Set(key, rawjson.Quote(rapid.SampledFrom([]string{"", "1", "two\n"}).Draw(t, "value")))
		}
		return string(o.Bytes())
	})
}

// fields draws an object with some of the given members.
func fields(t *rapid.T, name string, choices map[string]*rapid.Generator[string], order []string) string {
	var o rawjson.Object
	for _, key := range order {
		if rapid.Bool().Draw(t, name+"."+key) {
			o.Set(key, []byte(choices[key].Draw(t, name+"."+key)))
		}
	}
	return string(o.Bytes())
}

func literals(list ...string) *rapid.Generator[string] { return rapid.SampledFrom(list) }

func specs(k Kind) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		switch k.(type) {
		case AppProjectKind:
			return fields(t, "spec", map[string]*rapid.Generator[string]{
				"sourceRepos":                     literals(`["*"]`, `[]`),
				"sourceNamespaces":                literals(`["*"]`, `["one-ns"]`, `["/one/"]`),
				"destinations":                    literals(`[{"name":"*","namespace":"*"}]`, `[{"name":"one","namespace":"a"},{"server":"*","namespace":"!b"}]`, `[{"server":"*", "namespace":"*","more":[1.0]}]`),
				"roles":                           literals(`[]`, `[{"name":"r","policies":["p, proj:x:r, applications, get, x/*, allow"],"jwtTokens":[]}]`),
				"syncWindows":                     literals(`[]`, `[{"clusters":["one","in-cluster"],"kind":"deny"}]`, `[{"clusters":["two"]}]`),
				"destinationServiceAccounts":      literals(`[{"server":"*","namespace":"n"}]`),
				"permitOnlyProjectScopedClusters": literals(`true`, `false`),
				"future":                          values(2),
			}, []string{"future", "sourceRepos", "sourceNamespaces", "destinations", "roles", "syncWindows", "destinationServiceAccounts", "permitOnlyProjectScopedClusters"})
		default:
			return fields(t, "spec", map[string]*rapid.Generator[string]{
				"project":     literals(`""`, `"p"`, `"b-c"`, `"default"`),
				"destination": literals(`{}`, `{"name":"one","namespace":"n"}`, `{"name":"one","server":"","future":1.0}`),
				"source":      literals(`{"helm":{}}`, `{"helm":{"values":"x"},"kustomize":{"images":[]}}`, `{"directory":{"recurse":false,"include":"x"}}`, `{"directory":{"jsonnet":{}}}`),
				"sources":     literals(`[]`, `[{"helm":{}}]`),
				"syncPolicy":  literals(`{}`, `{"automated":{}}`, `{"syncOptions":[]}`, `{"retry":{}}`),
				"future":      values(3),
			}, []string{"future", "source", "project", "destination", "sources", "syncPolicy"})
		}
	})
}

// drawObject draws an object of a kind, with unknown fields.
func drawObject(t *rapid.T, k Kind, name, namespace, uid, label string) *Object {
	body := map[string]*rapid.Generator[string]{"future": values(3), "status": values(2), "operation": values(1)}
	order := []string{"future"}
	switch k.(type) {
	case ApplicationKind, AppProjectKind:
		body["spec"] = specs(k)
		order = append(order, "spec", "status", "operation")
	default:
		body["data"] = literals(`{}`, `{"b":"eA==","a":""}`)
		order = append(order, "data")
	}
	top := members([]byte(fields(t, label, body, order)))
	labels, annotations := members([]byte(texts().Draw(t, label+".labels"))), members([]byte(texts().Draw(t, label+".annotations")))
	if _, ok := k.(RepositoryKind); ok {
		labels.Set(secretType, rawjson.Quote("repository"))
	}
	meta := rawjson.Object{{Key: "name", Value: rawjson.Quote(name)}, {Key: "namespace", Value: rawjson.Quote(namespace)}, {Key: "uid", Value: rawjson.Quote(uid)}, {Key: "future", Value: []byte(values(1).Draw(t, label+".future"))}}
	setList(&meta, "labels", labels)
	setList(&meta, "annotations", annotations)
	if rapid.Bool().Draw(t, label+".finalizers") {
		meta.Set("finalizers", []byte(literals(`[]`, `["x/y"]`, `["resources-finalizer.argocd.argoproj.io"]`, `["resources-finalizer.argocd.argoproj.io/background","x/y"]`).Draw(t, label+".finalizer")))
	}
	top.Set("metadata", meta.Bytes())
	o, err := Parse(top.Bytes())
	if err != nil {
		t.Fatalf("%v in %s", err, top.Bytes())
	}
	return o
}

type setup struct {
	name           string
	kind           Kind
	owner, replica *Env
	object         string // name of the object on the owner's side
	from           string // namespace
	placing        []placing
}

// placing is a member of the spec that decides whether an object is published,
// with values that let it be.
type placing struct {
	member string
	values *rapid.Generator[string]
}

func setups() []setup {
	everywhere := func(side Side) *Env {
		w := newEnv(side, Managed, ByDestination)
		w.Settings.AllowedNamespaces = []string{"*"}
		return w
	}
	sharing := managedHub()
	sharing.Settings.ShareUnscopedRepositories = true
	autoAnywhere := autoSpoke()
	autoAnywhere.Settings.AllowedNamespaces = []string{"team"}
	destination := placing{"destination", literals(`{"name":"one","namespace":"n"}`, `{"name":"one","server":"","future":1.0}`)}
	destinations := placing{"destinations", literals(`[{"name":"*","namespace":"*"}]`, `[{"name":"one","namespace":"a"},{"server":"*","namespace":"!b"}]`)}
	sourceNamespaces := placing{"sourceNamespaces", literals(`["*"]`, `["one-ns"]`, `["/one/"]`)}
	return []setup{
		{"application, namespace mapping", ApplicationKind{}, managedHub(), managedSpoke(), "x", "one-ns", nil},
		{"application, destination mapping", ApplicationKind{}, everywhere(Hub), everywhere(Spoke), "x", "team", []placing{destination}},
		{"application, autonomous", ApplicationKind{}, autoSpoke(), allowing(Allow{Roles: true, Notifications: true}), "x", "argo", nil},
		{"application, autonomous, elsewhere", ApplicationKind{}, autoAnywhere, allowing(Allow{Notifications: true}), "x", "team", nil},
		{"project, namespace mapping", AppProjectKind{}, managedHub(), managedSpoke(), "x", "argocd", []placing{destinations, sourceNamespaces}},
		{"project, destination mapping", AppProjectKind{}, everywhere(Hub), everywhere(Spoke), "x", "argocd", []placing{destinations}},
		{"project, autonomous", AppProjectKind{}, autoSpoke(), allowing(Allow{Roles: true, Notifications: true}), "x", "argo", nil},
		{"repository", RepositoryKind{}, sharing, managedSpoke(), "x", "argocd", nil},
		{"trust", GPGKeyKind{}, managedHub(), managedSpoke(), gpgKeys, "argocd", nil},
	}
}

// Whatever the owner has, and whatever the replica had: after a merge the
// replica reads as what was sent, a second merge changes nothing, and what the
// other side does not own is as it was.
func TestProjection_StableAfterMerge(t *testing.T) {
	for _, s := range setups() {
		t.Run(s.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				item := drawItem(t, s, "u1", "first")
				if IsFrozen(item.Content) {
					return
				}
				var local *Object
				if rapid.Bool().Draw(t, "exists") {
					local = drawLocal(t, s, item.Key)
				}
				merged, err := s.kind.Merge(local, item.Key, item.Content, nil, Ownership{}, s.replica)
				if err != nil {
					t.Fatalf("merge: %v", err)
				}
				held, ok := s.kind.ReadReplica(merged, s.replica)
				if !ok || held.Key != item.Key || !held.Ownership.Owned || held.Ownership.Source != "u1" {
					t.Fatalf("held %v as %v, %+v: %s", ok, held.Key, held.Ownership, merged.Raw())
				}
				if !bytes.Equal(held.Content, item.Content) {
					t.Fatalf("sent %s\nheld %s", item.Content, held.Content)
				}
				if c, err := rawjson.Canonical(item.Content); err != nil || !bytes.Equal(c, item.Content) {
					t.Fatalf("content is not canonical: %s", item.Content)
				}
				again, err := s.kind.Merge(merged, item.Key, item.Content, nil, Ownership{}, s.replica)
				if err != nil || !bytes.Equal(again.Raw(), merged.Raw()) {
					t.Fatalf("merged again (%v):\n%s\n%s", err, merged.Raw(), again.Raw())
				}
				if local != nil {
					checkKept(t, s, local, merged)
				}
			})
		})
	}
}

// drawItem draws an object of the owner and projects it. One that is not for
// this agent is made so: a run that draws few objects must not draw only those
// that prove nothing.
func drawItem(t *rapid.T, s setup, uid, label string) Item {
	o := drawObject(t, s.kind, s.object, s.from, uid, label)
	if item, ok := s.kind.Publish(o, s.owner); ok {
		return item
	}
	for _, p := range s.placing {
		b, err := rawjson.Set(o.Raw(), []byte(p.values.Draw(t, label+" "+p.member)), "spec", p.member)
		if err != nil {
			t.Fatal(err)
		}
		if o, err = Parse(b); err != nil {
			t.Fatal(err)
		}
	}
	item, ok := s.kind.Publish(o, s.owner)
	if !ok {
		t.Fatalf("not published: %s", o.Raw())
	}
	return item
}

// drawLocal draws what the replica had under that key: on a spoke anything, on
// the hub an earlier replica that users have added to.
func drawLocal(t *rapid.T, s setup, k engine.Key) *Object {
	ref, err := s.kind.Target(k, s.replica)
	if err != nil {
		t.Fatal(err)
	}
	local := drawObject(t, s.kind, ref.Name, ref.Namespace, "l", "local")
	if s.replica.Side == Spoke {
		return local
	}
	earlier := drawItem(t, s, "u0", "earlier")
	copied, err := s.kind.Merge(nil, earlier.Key, earlier.Content, nil, Ownership{}, s.replica)
	if err != nil {
		t.Fatal(err)
	}
	d := edit(copied)
	for _, list := range []string{"labels", "annotations"} {
		own := members(d.meta.Get(list))
		for i := range rapid.IntRange(0, 3).Draw(t, "added") {
			own.Set("hub/"+strconv.Itoa(i), rawjson.Quote("h"))
		}
		setList(&d.meta, list, own)
	}
	d.top.Set("status", []byte(values(2).Draw(t, "hub status")))
	copied, err = d.done()
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

// checkKept compares what the other side does not own, byte for byte.
func checkKept(t *rapid.T, s setup, before, after *Object) {
	for _, path := range [][]string{{"future"}, {"status"}, {"operation"}, {"metadata", "future"}, {"metadata", "uid"}} {
		if !bytes.Equal(before.Get(path...), after.Get(path...)) {
			t.Fatalf("%v was %s and is %s", path, before.Get(path...), after.Get(path...))
		}
	}
	for key, value := range before.Annotations() {
		if (neverAnnotation(key) && key != SourceUID && key != OwnedKeysAnnotation || s.replica.Side == Hub && key[:min(4, len(key))] == "hub/") && after.Annotation(key) != value {
			t.Fatalf("annotation %s was %q and is %q", key, value, after.Annotation(key))
		}
	}
	for key, value := range before.Labels() {
		if (neverLabel(key, s.replica) || s.replica.Side == Hub && key[:min(4, len(key))] == "hub/") && after.Label(key) != value {
			t.Fatalf("label %s was %q and is %q", key, value, after.Label(key))
		}
	}
	if _, ok := s.kind.(ApplicationKind); ok && s.replica.Side == Spoke {
		for _, f := range before.Finalizers() {
			if !isCascade(f) && !bytes.Contains(after.metadata, []byte(f)) {
				t.Fatalf("finalizer %s is gone", f)
			}
		}
	}
}

func TestStatus_StableAfterMerge(t *testing.T) {
	states := literals(`null`, `{"phase":"Running","startedAt":"2026-01-01T00:00:00Z"}`, `{"phase":"Succeeded","operation":`+byCommand+`,"syncResult":{"resources":[]}}`)
	rapid.Check(t, func(t *rapid.T) {
		status := func(label string) string {
			return fields(t, label, map[string]*rapid.Generator[string]{
				"future": values(2), "operationState": states, "reconciledAt": literals(`"2026-01-01T00:00:00Z"`),
				"conditions": literals(`[]`, `[{"type":"AgentError","message":"x"}]`, `[{"type":"SyncError","message":"x"},{"type":"AgentError","message":"x"}]`),
			}, []string{"reconciledAt", "future", "conditions", "operationState"})
		}
		draw := func(label, namespace, annotations string, operations *rapid.Generator[string]) *Object {
			operation := ""
			if rapid.Bool().Draw(t, label+" has an operation") {
				operation = `,"operation":` + operations.Draw(t, label+" operation")
			}
			o, err := Parse([]byte(`{"metadata":{"name":"a","namespace":"` + namespace + `"` + annotations + `},"spec":{"destination":{"name":"one"}},"future":` + values(2).Draw(t, label+" future") + `,"status":` + status(label) + operation + `}`))
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		spoke := draw("spoke", "argo", `,`+marked, literals(bySpoke, byCommand, mirrored, `{"info":[]}`))
		item, _ := StatusKind{}.Publish(spoke, managedSpoke())
		hub := draw("hub", "one-ns", "", literals(mirrored, mirrorOfC))
		merged, err := StatusKind{}.Merge(hub, item.Key, item.Content, item.Extra, Ownership{}, managedHub())
		if err != nil {
			t.Fatal(err)
		}
		held, ok := StatusKind{}.ReadReplica(merged, managedHub())
		if !ok || !bytes.Equal(held.Content, item.Content) {
			if rawjson.Text(hub.Get("status", "operationState"), "phase") != phaseTerminating {
				t.Fatalf("sent %s\nheld %s", item.Content, held.Content)
			}
		}
		if !bytes.Equal(hub.Get("future"), merged.Get("future")) {
			t.Fatal("an unknown field has changed")
		}
		if a, b := rawjson.Text(merged.Get("status", "reconciledAt")), rawjson.Text(spoke.Get("status", "reconciledAt")); a != b {
			t.Fatalf("reconciledAt is %q, not %q", a, b)
		}
		again, err := StatusKind{}.Merge(merged, item.Key, item.Content, item.Extra, Ownership{}, managedHub())
		if err != nil || !bytes.Equal(again.Raw(), merged.Raw()) {
			t.Fatalf("merged again (%v):\n%s\n%s", err, merged.Raw(), again.Raw())
		}
	})
}

// A project cut down to one agent permits there exactly what the hub's permits.
func TestProjectRewrite_PermitsTheSameDestinations(t *testing.T) {
	names := literals("", "one", "two", "o*", "*", "!one", "!two", "{one,two}")
	servers := literals("", "*", "https://proxy:9090?agentName=one", "*agentName=o*", "!*agentName=one", "!*agentName=two", "https://x")
	namespaces := literals("", "*", "a", "a*", "!a", "!a*", "kube-system", "!kube-*", "team-[ab]")
	hub, spoke := cluster{"one", "https://proxy:9090?agentName=one"}, cluster{inClusterName, inClusterServer}
	rapid.Check(t, func(t *rapid.T) {
		var list [][]byte
		for range rapid.IntRange(1, 5).Draw(t, "entries") {
			list = append(list, fmt.Appendf(nil, `{"name":%q,"server":%q,"namespace":%q}`, names.Draw(t, "name"), servers.Draw(t, "server"), namespaces.Draw(t, "namespace")))
		}
		there := readDestinations(rawjson.Join(list))
		if !hub.permitted(there) {
			for _, namespace := range []string{"a", "ab", "kube-system", "zz", "team-a"} {
				if hub.permits(there, namespace) {
					t.Fatalf("%s permits %s, and yet is not sent", rawjson.Join(list), namespace)
				}
			}
			return
		}
		rewritten := hub.rewriteDestinations(there, spoke)
		here := readDestinations(rewritten)
		for _, namespace := range []string{"", "a", "ab", "kube-system", "zz", "team-a"} {
			if hub.permits(there, namespace) != spoke.permits(here, namespace) {
				t.Fatalf("namespace %q: %s on the hub, %s on the spoke", namespace, rawjson.Join(list), rewritten)
			}
		}
	})
}

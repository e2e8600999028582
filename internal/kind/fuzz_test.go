package kind

import (
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// targets are all places where content of a peer is merged.
func targets() []setup {
	list := setups()
	for _, mode := range []Mode{Managed, Autonomous} {
		hub, spoke := newEnv(Hub, mode, ByNamespace), newEnv(Spoke, mode, ByNamespace)
		list = append(list,
			setup{"status, " + string(mode), StatusKind{}, spoke, hub, "x", "argo", nil},
			setup{"command, " + string(mode), CommandKind{}, hub, spoke, "x", "one-ns", nil})
	}
	return list
}

// FuzzMerge gives hostile content to every kind, mode and side: it never
// panics, and whatever it is made into is the agent's own.
func FuzzMerge(f *testing.F) {
	for i := range targets() {
		f.Add(uint8(i), "", "x", []byte(`{"uid":"u","metadata":{"labels":{"argocd.argoproj.io/secret-type":"repository"},"finalizers":["resources-finalizer.argocd.argoproj.io"]},"spec":{"project":"one-p","destination":{"name":"one"},"sourceNamespaces":["one-ns"],"destinations":[{"name":"one"}],"roles":[{"name":"r","policies":["p, proj:one-x:r, logs, get, one-x/*, allow"]}]},"status":{"operationState":{}},"operation":{"info":[{"name":"argocd-agent/command","value":"c"}]},"data":{}}`), []byte(`{"lastCommands":["c"]}`), true)
		f.Add(uint8(i), "team", "x", []byte(`{"uid":"u","spec":{"project":"p","destination":{"name":"in-cluster"}},"refresh":"hard","terminate":{"startedAt":"t"}}`), []byte(`{"refreshed":"n","reconciledAt":"2026-01-01T00:00:00Z"}`), false)
	}
	all := targets()
	f.Fuzz(func(t *testing.T, which uint8, namespace, name string, content, extra []byte, exists bool) {
		s := all[int(which)%len(all)]
		k := engine.Key{Namespace: namespace, Name: name}
		ref, err := s.kind.Target(k, s.replica)
		var local *Object
		if err == nil && exists {
			local, err = Parse([]byte(`{"metadata":{"name":"` + ref.Name + `","namespace":"` + ref.Namespace + `","labels":{"argocd.argoproj.io/secret-type":"repository"},"annotations":{"argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-1","argocd-agent.argoproj-labs.io/agent-name":"one"}},"spec":{},"status":{},"operation":{"sync":{}}}`))
			if err != nil {
				t.Fatalf("a target that is no name: %+v", ref)
			}
		}
		merged, err := s.kind.Merge(local, k, content, extra, Ownership{}, s.replica)
		if err != nil {
			return
		}
		if merged.Name() != ref.Name || merged.Namespace() != ref.Namespace {
			t.Fatalf("%s became %s/%s", k, merged.Namespace(), merged.Name())
		}
		if rawjson.Check(merged.Raw(), 0) != nil {
			t.Fatalf("not JSON: %q", merged.Raw())
		}
		if again, err := s.kind.Merge(merged, k, content, extra, Ownership{}, s.replica); err != nil {
			t.Logf("a second time: %v", err)
		} else if _, command := s.kind.(CommandKind); !command && !Same(merged, again) {
			t.Fatalf("merged again:\n%s\n%s", merged.Raw(), again.Raw())
		}
		s.kind.ReadReplica(merged, s.replica)
		expectUnchanged(t, s, merged)
	})
}

// expectUnchanged checks that an object on the hub is confined to its agent, and one on
// the spoke to what the hub may write there.
func expectUnchanged(t *testing.T, s setup, o *Object) {
	t.Helper()
	switch s.kind.(type) {
	case ApplicationKind:
		destination := o.Get("spec", "destination")
		want := inClusterName
		if s.replica.Side == Hub {
			want = "one"
			if o.Namespace() != "one-ns" {
				t.Fatalf("in namespace %s", o.Namespace())
			}
			if agent, _, ok := SplitProjectName(ProjectOf(o)); !ok || agent != "one" {
				t.Fatalf("in project %s", ProjectOf(o))
			}
		}
		if rawjson.Text(destination, "name") != want || rawjson.Text(destination, "server") != "" {
			t.Fatalf("aims at %s", destination)
		}
	case AppProjectKind:
		if s.replica.Side != Hub {
			return
		}
		if agent, _, ok := SplitProjectName(o.Name()); !ok || agent != "one" || o.Namespace() != "argocd" {
			t.Fatalf("is %s/%s", o.Namespace(), o.Name())
		}
		if namespaces, _ := rawjson.Strings(o.Get("spec", "sourceNamespaces")); !slices.Equal(namespaces, []string{"one-ns"}) {
			t.Fatalf("is for %v", namespaces)
		}
		other := cluster{"two", "https://proxy:9090?agentName=two"}
		if other.permitted(readDestinations(o.Get("spec", "destinations"))) {
			t.Fatalf("permits another agent: %s", o.Get("spec", "destinations"))
		}
	case RepositoryKind:
		if !isRepositoryType(o.Label(secretType)) {
			t.Fatal("no longer a repository")
		}
	case StatusKind:
		same := o.Get("spec")
		if string(same) != "{}" {
			t.Fatalf("spec became %s", same)
		}
	}
}

// FuzzObject gives hostile objects to every kind on every side.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"x","namespace":"argo","labels":{"a":1},"annotations":[]},"spec":{"destinations":[{}],"roles":[[]],"syncWindows":{}},"status":[]}`))
	f.Add([]byte(`{"metadata":{"name":"x","namespace":"one-ns","annotations":{"argocd-agent.argoproj-labs.io/source-name":"a/b/c","argocd-agent.argoproj-labs.io/alias":"=","argocd-agent.argoproj-labs.io/owned-keys":"[]"}},"spec":{"source":[],"destination":"x"},"operation":[],"status":{"conditions":{},"operationState":[]}}`))
	f.Add([]byte(`{"metadata":{"name":"x","namespace":"argo","annotations":{"argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-1","argocd-agent.argoproj-labs.io/alias":"{\"written\":\"00000000000000010000000000000002\",\"stored\":\"00000000000000030000000000000004\",\"lost\":[\"a\",1]}"}},"spec":{}}`))
	f.Add([]byte(`{"metadata":{"name":"one-x","namespace":"argocd","finalizers":{}},"data":[]}`))
	all := targets()
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := Parse(text)
		if err != nil {
			return
		}
		for _, s := range all {
			for _, w := range []*Env{s.owner, s.replica} {
				if item, ok := s.kind.Publish(o, w); ok && rawjson.Check(item.Content, 0) != nil {
					t.Fatalf("published %q", item.Content)
				}
				s.kind.Matches(o)
				s.kind.Key(o, w)
				s.kind.ReadReplica(o, w)
				ReadOwnership(o, w)
				Pending(o, w)
				if r, ok := s.kind.(Remover); ok {
					r.Keeps(o)
					r.Release(o, w)
				}
			}
		}
		StripCascade(o)
		StripFinalizers(o)
		ClearCondition(o, ConditionError)
		SetDegraded(o, "x")
		FailCommand(o, "", "x", day)
		Urgent(o, o.Raw(), o.Raw())
	})
}

// FuzzLostFields compares any two contents.
func FuzzLostFields(f *testing.F) {
	f.Add([]byte(`{"spec":{"a":[{"b":1.0}],"c":{}}}`), []byte(`{"spec":{"a":[{"b":1}],"c":null}}`))
	f.Add([]byte(`{"metadata":{"labels":{"x.y/z":"1"}},"uid":1}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, written, stored []byte) {
		a, err1 := rawjson.Canonical(written)
		b, err2 := rawjson.Canonical(stored)
		if err1 != nil || err2 != nil {
			return
		}
		if lost := LostFields(a, a); lost != nil {
			t.Fatalf("%s loses %q when it is stored as it is", a, lost)
		}
		for _, field := range ShortFields(LostFields(a, b)) {
			if len(field) > maxLostText+len("…") || !utf8.ValidString(field) {
				t.Fatalf("field %q", field)
			}
		}
	})
}

// FuzzSelector reads selectors; what is accepted can be evaluated.
func FuzzSelector(f *testing.F) {
	for _, s := range []string{"a=b", "a in (b,c),!d", "a notin (", "=,()"} {
		f.Add(s, "a")
	}
	f.Fuzz(func(t *testing.T, text, label string) {
		if s, err := ParseSelector(text); err == nil {
			s.Matches(map[string]string{label: "b"})
		}
		globMatch(text, label)
		samples(text)
		matchesAny([]string{text}, label)
		parsePolicy(text, label, "r")
	})
}

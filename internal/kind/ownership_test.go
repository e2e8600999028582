package kind

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// annotatedApp returns an Application of the hub's namespace of agent one with annotations.
func annotatedApp(t *testing.T, name, annotations string) *Object {
	t.Helper()
	return object(t, `{"metadata":{"name":"`+name+`","namespace":"one-ns","uid":"hub-uid","annotations":{`+annotations+`}},"spec":{"project":"one-p","destination":{"name":"one"}}}`)
}

const (
	ourMark = `"argocd.argoproj.io/source-uid":"s","argocd.argoproj.io/principal-uid":"hub-1"`
	ourCopy = ourMark + `,"argocd-agent.argoproj-labs.io/agent-name":"one"`
)

func TestReadOwnership_DecidesOwner(t *testing.T) {
	for _, c := range []struct {
		name, annotations string
		w                 *Env
		owned, foreign    bool
	}{
		{"on a spoke, marked", ourMark, managedSpoke(), true, false},
		{"on a spoke, of another principal", `"argocd.argoproj.io/source-uid":"s","argocd.argoproj.io/principal-uid":"hub-2"`, managedSpoke(), false, true},
		{"on a spoke, without the principal", `"argocd.argoproj.io/source-uid":"s"`, managedSpoke(), false, false},
		{"on a spoke, without the source", `"argocd.argoproj.io/principal-uid":"hub-1"`, managedSpoke(), false, false},
		{"on the hub, of this agent", ourCopy, autoHub(), true, false},
		{"on the hub, of another agent", ourMark + `,"argocd-agent.argoproj-labs.io/agent-name":"two"`, autoHub(), false, true},
		{"on the hub, of no agent", ourMark, autoHub(), false, true},
	} {
		m := ReadOwnership(annotatedApp(t, "a", c.annotations), c.w)
		if m.Owned != c.owned || m.Foreign != c.foreign {
			t.Errorf("%s: %+v", c.name, m)
		}
	}
}

func TestHubKey_MatchesNameOfReplica(t *testing.T) {
	for _, c := range []struct {
		name, annotations string
		want              string // empty: none
	}{
		{"a", ourCopy, "a"},
		{"team.a", ourCopy + `,"argocd-agent.argoproj-labs.io/source-name":"team/a"`, "team/a"},
		{"a", ourCopy + `,"argocd-agent.argoproj-labs.io/source-name":"team/b"`, ""},
	} {
		k, ok := ApplicationKind{}.Key(annotatedApp(t, c.name, c.annotations), autoHub())
		if ok != (c.want != "") || ok && k.String() != c.want {
			t.Errorf("%s, %s: %v %v", c.name, c.annotations, k, ok)
		}
	}
}

func TestMerge_AgentWritesOnlyItsReplicasOnHub(t *testing.T) {
	app := []byte(`{"uid":"s","spec":{"project":"one-p","destination":{"name":"one"}}}`)
	project := []byte(`{"uid":"s","spec":{"sourceNamespaces":["one-ns"],"destinations":[{"name":"one","namespace":"*"}]}}`)
	for name, annotations := range map[string]string{
		"without ownership":   ``,
		"without a source":    `"argocd-agent.argoproj-labs.io/agent-name":"one"`,
		"of another agent":    ourMark + `,"argocd-agent.argoproj-labs.io/agent-name":"two"`,
		"from another source": ourCopy + `,"argocd-agent.argoproj-labs.io/source-name":"team/b"`,
	} {
		_, err := ApplicationKind{}.Merge(annotatedApp(t, "a", annotations), named("a"), app, nil, Ownership{}, autoHub())
		expectRejected(t, "Application "+name, err, engine.NameTaken)
		local := object(t, `{"metadata":{"name":"one-p","namespace":"argocd","annotations":{`+annotations+`}},"spec":{}}`)
		_, err = AppProjectKind{}.Merge(local, named("p"), project, nil, Ownership{}, autoHub())
		expectRejected(t, "project "+name, err, engine.NameTaken)
	}
	if _, err := (ApplicationKind{}).Merge(annotatedApp(t, "a", ourCopy), named("a"), app, nil, Ownership{}, autoHub()); err != nil {
		t.Error(err)
	}
	_, err := StatusKind{}.Merge(annotatedApp(t, "a", ourCopy), named("b"), []byte(`{"status":{}}`), nil, Ownership{}, autoHub())
	expectRejected(t, "status under another key", err, engine.NoObject)
}

func TestMerge_OwnerAcceptsNothingFromReplica(t *testing.T) {
	for _, k := range []Kind{ApplicationKind{}, AppProjectKind{}, RepositoryKind{}, GPGKeyKind{}} {
		_, err := k.Merge(nil, named(gpgKeys), []byte(`{"uid":"s","spec":{}}`), nil, Ownership{}, managedHub())
		expectRejected(t, k.Scope(), err, engine.WrongMode)
	}
}

// The hub's UID of a copy is not the UID of the spoke's Application.
func TestCommand_NamesSourceApplication(t *testing.T) {
	o := annotatedApp(t, "a", ourCopy+`,"argocd.argoproj.io/refresh":"normal"`)
	item, ok := CommandKind{}.Publish(o, autoHub())
	if !ok {
		t.Fatal("not published")
	}
	expectJSON(t, "content", item.Content, `{"refresh":"normal","uid":"s"}`)
}

func TestOwnership_AdoptedStaysAdopted(t *testing.T) {
	for _, c := range kindCases("argo", "argo") {
		o := object(t, c.before+`"x":"y"`+c.after)
		adopted, err := c.kind.Merge(o, named(o.Name()), []byte(c.content), nil, Ownership{Adopted: true}, managedSpoke())
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.kind.Merge(adopted, named(o.Name()), []byte(c.content), nil, Ownership{}, managedSpoke())
		if err != nil || !ReadOwnership(again, managedSpoke()).Adopted {
			t.Errorf("%s: no longer adopted: %v", c.kind.Scope(), err)
		}
	}
}

func TestAlias_IsReadWithinLimits(t *testing.T) {
	alias := Alias{Alias: engine.Alias{Written: engine.VersionOf([]byte("w")), Stored: engine.VersionOf([]byte("s"))}}
	for n, want := range map[int]bool{0: true, 8: true, 200: false} {
		alias.Lost = nil
		for range n {
			alias.Lost = append(alias.Lost, "spec.a.very.long.path.to.some.field")
		}
		o := WithAlias(annotatedApp(t, "a", ourCopy), alias)
		if got := !ReadOwnership(o, autoHub()).Alias.Written.IsZero(); got != want {
			t.Errorf("with %d fields: %v", n, got)
		}
	}
}

func TestDroppedFields_OnlyOfOwnedObjects(t *testing.T) {
	for annotations, want := range map[string]int{ourCopy: 1, ``: 0} {
		o := annotatedApp(t, "a", annotations)
		held, ok := ApplicationKind{}.ReadReplica(o, autoHub())
		if !ok {
			t.Fatal("not a copy")
		}
		o = WithAlias(o, Alias{Alias: engine.Alias{Written: engine.VersionOf([]byte("w")), Stored: engine.VersionOf(held.Content)}, Lost: []string{"spec.x"}})
		if got := len(DroppedFields(ApplicationKind{}, o, autoHub())); got != want {
			t.Errorf("%q: %d", annotations, got)
		}
	}
}

func TestOwnership_RecordsTheGenerationOfTheHub(t *testing.T) {
	for _, m := range []Ownership{{Source: "s", SourceRevision: 7}, {Source: "s", SourceRevision: 7, SourceGeneration: 2}} {
		var annotations rawjson.Object
		writeOwnership(&annotations, m, "", managedSpoke())
		written := object(t, `{"metadata":{"name":"a","namespace":"argocd","annotations":`+string(annotations.Bytes())+`}}`)
		if got := ReadOwnership(written, managedSpoke()); got.SourceRevision != 7 || got.SourceGeneration != m.SourceGeneration {
			t.Errorf("%+v: %+v", m, got)
		}
	}
	at := func(generation, revision uint64) Ownership {
		return Ownership{SourceGeneration: generation, SourceRevision: revision}
	}
	if !at(0, 9).IsOlder(at(2, 3)) || at(2, 3).IsOlder(at(0, 9)) || !at(2, 3).IsOlder(at(2, 4)) || at(2, 4).IsOlder(at(2, 4)) {
		t.Error("the generation does not decide before the revision")
	}
}

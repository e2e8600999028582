package kind

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

func TestLostFields_ReportsDroppedFields(t *testing.T) {
	for _, c := range []struct {
		name, written, stored string
		lost                  []string
	}{
		{"equal", `{"spec":{"a":1}}`, `{"spec":{"a":1}}`, nil},
		{"a default is added", `{"spec":{"a":{}}}`, `{"spec":{"a":{"b":1},"c":true}}`, nil},
		{"a default is added to an element", `{"spec":{"l":[{"a":1}]}}`, `{"spec":{"l":[{"a":1,"b":2}]}}`, nil},
		{"null, an empty text and an empty list say nothing", `{"spec":{"a":null,"b":"","c":[]}}`, `{"spec":{}}`, nil},
		{"and mean the same", `{"spec":{"a":null,"b":"","c":[]}}`, `{"spec":{"a":"","b":[],"c":null}}`, nil},
		{"a number in another form", `{"spec":{"a":1.0,"b":1e2}}`, `{"spec":{"a":1,"b":100}}`, nil},
		{"another number", `{"spec":{"a":1.5,"b":9007199254740993}}`, `{"spec":{"a":1,"b":9007199254740992}}`, []string{"spec.a", "spec.b"}},
		{"false may mean something", `{"spec":{"syncPolicy":{"automated":{"enabled":false}}}}`, `{"spec":{"syncPolicy":{"automated":{}}}}`,
			[]string{"spec.syncPolicy.automated.enabled"}},
		{"so may an empty object", `{"spec":{"syncPolicy":{"automated":{}}}}`, `{"spec":{"syncPolicy":{}}}`, []string{"spec.syncPolicy.automated"}},
		{"a part that is missing is listed once", `{"spec":{"a":{"b":1,"c":2}}}`, `{"spec":{}}`, []string{"spec.a"}},
		{"a value is changed", `{"spec":{"a":"x","b":"y"}}`, `{"spec":{"a":"x","b":"z"}}`, []string{"spec.b"}},
		{"a value has another type", `{"spec":{"a":{"b":1}}}`, `{"spec":{"a":"text"}}`, []string{"spec.a"}},
		{"a value is emptied", `{"spec":{"a":"x"}}`, `{"spec":{"a":""}}`, []string{"spec.a"}},
		{"an element is missing", `{"spec":{"l":[1,2]}}`, `{"spec":{"l":[1]}}`, []string{"spec.l"}},
		{"an element is added", `{"spec":{"l":[1]}}`, `{"spec":{"l":[1,2]}}`, []string{"spec.l"}},
		{"a field of an element is missing", `{"spec":{"sources":[{"a":1},{"helm":{"skipTests":true}}]}}`, `{"spec":{"sources":[{"a":1},{"helm":{}}]}}`,
			[]string{"spec.sources[1].helm.skipTests"}},
		{"keys that are no names", `{"metadata":{"annotations":{"a.b/c":"1","d":"2"}}}`, `{"metadata":{}}`, []string{"metadata.annotations"}},
		{"each of them", `{"metadata":{"annotations":{"a.b/c":"1","d":"2"}}}`, `{"metadata":{"annotations":{"d":"3"}}}`,
			[]string{`metadata.annotations["a.b/c"]`, "metadata.annotations.d"}},
		{"what is of the item and not of the object", `{"deleting":true,"uid":"x","spec":{}}`, `{"uid":"y","spec":{}}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := LostFields([]byte(c.written), []byte(c.stored)); !slices.Equal(got, c.lost) {
				t.Errorf("lost %q, not %q", got, c.lost)
			}
		})
	}
}

func TestShortFields_AreBounded(t *testing.T) {
	var many []string
	for range 3 * maxLost {
		many = append(many, strings.Repeat("ü", maxLostText))
	}
	short := ShortFields(many)
	if len(short) != maxLost+1 || short[maxLost] != "16 more" {
		t.Fatalf("%d fields, the last is %q", len(short), short[len(short)-1])
	}
	for _, f := range short {
		if len(f) > maxLostText+len("…") || !utf8.ValidString(f) {
			t.Errorf("%d bytes: %q", len(f), f)
		}
	}
	if again := ShortFields(short[:maxLost]); !slices.Equal(again[1:], short[1:maxLost]) {
		t.Errorf("a recorded list changes: %q", again)
	}
}

// withDropped is the spoke's replica of an Application of which a field is lost.
func withDropped(t *testing.T) *Object {
	t.Helper()
	o, err := ApplicationKind{}.Merge(nil, named("a"), []byte(guestbook), nil, Ownership{}, managedSpoke())
	if err != nil {
		t.Fatal(err)
	}
	held, ok := ApplicationKind{}.ReadReplica(o, managedSpoke())
	if !ok {
		t.Fatal("not a replica")
	}
	return WithAlias(o, Alias{Alias: engine.Alias{Written: engine.VersionOf([]byte(guestbook)), Stored: engine.VersionOf(held.Content)},
		Lost: []string{"spec.x"}, Release: "r"})
}

func TestStatus_CarriesDroppedFields(t *testing.T) {
	dropped := withDropped(t)
	item, ok := StatusKind{}.Publish(dropped, managedSpoke())
	if !ok || !strings.Contains(string(item.Content), ConditionDropped) || !strings.Contains(string(item.Content), "spec.x") {
		t.Fatalf("status is %s", item.Content)
	}
	edited, err := rawjson.Set(dropped.Raw(), []byte(`"other"`), "spec", "source", "path")
	if err != nil {
		t.Fatal(err)
	}
	item, _ = StatusKind{}.Publish(object(t, string(edited)), managedSpoke())
	if strings.Contains(string(item.Content), ConditionDropped) {
		t.Errorf("an Application that has changed since shows %s", item.Content)
	}
}

// What the agent says is taken for the condition about dropped fields, and for
// no other of ours.
func TestStatus_HubAcceptsOneConditionFromAgent(t *testing.T) {
	const (
		ours   = `{"metadata":{"name":"a","namespace":"one-ns"},"spec":{"destination":{"name":"one"}}}`
		theirs = `{"metadata":{"name":"a","namespace":"one-ns","annotations":{"argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-1","argocd-agent.argoproj-labs.io/agent-name":"one"}},"spec":{"destination":{"name":"one"}}}`
	)
	long := strings.Repeat("x", maxDropped+1)
	for _, c := range []struct {
		name, conditions string
		w                *Env
		local            string
		shown            []string
	}{
		{"managed", `[{"type":"AgentFieldsDroppedWarning","message":"m"},{"type":"ComparisonError","message":"c"}]`, managedHub(), ours, []string{"ComparisonError", "AgentFieldsDroppedWarning", "AgentError"}},
		{"managed, others of ours", `[{"type":"AgentError","message":"m"},{"type":"AgentHeldWarning","message":"m"}]`, managedHub(), ours, []string{"AgentError"}},
		{"managed, several", `[{"type":"AgentFieldsDroppedWarning","message":"m"},{"type":"AgentFieldsDroppedWarning","message":"n"}]`, managedHub(), ours, []string{"AgentFieldsDroppedWarning", "AgentError"}},
		{"managed, too long", `[{"type":"AgentFieldsDroppedWarning","message":"` + long + `"}]`, managedHub(), ours, []string{"AgentError"}},
		{"managed, no longer any", `[]`, managedHub(), ours, []string{"AgentError"}},
		{"autonomous", `[{"type":"AgentFieldsDroppedWarning","message":"m"}]`, autoHub(), theirs, []string{"AgentFieldsDroppedWarning", "AgentError"}},
		{"autonomous, none", `[]`, autoHub(), theirs, []string{"AgentFieldsDroppedWarning", "AgentError"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			local := object(t, c.local)
			local = SetCondition(local, ConditionDropped, "before", time.Unix(0, 0))
			local = SetCondition(local, ConditionError, "ours", time.Unix(0, 0))
			key, ok := StatusKey(local, c.w)
			if !ok {
				t.Fatal("not of this agent")
			}
			content, err := rawjson.Canonical([]byte(`{"status":{"conditions":` + c.conditions + `}}`))
			if err != nil {
				t.Fatal(err)
			}
			merged, err := StatusKind{}.Merge(local, key, content, nil, Ownership{}, c.w)
			if err != nil {
				t.Fatal(err)
			}
			list, _ := rawjson.Elements(merged.Get("status", "conditions"))
			var shown []string
			for _, one := range list {
				shown = append(shown, rawjson.Text(one, "type"))
			}
			if !slices.Equal(shown, c.shown) {
				t.Errorf("the hub shows %v", shown)
			}
		})
	}
}

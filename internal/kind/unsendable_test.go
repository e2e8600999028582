package kind

import (
	"bytes"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

func TestUnsendable_IsNotAbsent(t *testing.T) {
	deep := strings.Repeat("[", rawjson.MaxDepth) + strings.Repeat("]", rawjson.MaxDepth)
	project := `{"metadata":{"name":"a","namespace":"argocd","uid":"u"},"spec":{"destinations":[{"name":"*","namespace":"*"}],"sourceNamespaces":["*"],"future":` + deep + `}}`
	for _, c := range []struct {
		name           string
		kind           Kind
		owner, replica *Env
		object         string
	}{
		{"application, managed", ApplicationKind{}, managedHub(), managedSpoke(), `{"metadata":{"name":"a","namespace":"one-ns","uid":"u"},"spec":{"destination":{"name":"one"},"future":` + deep + `}}`},
		{"application, autonomous", ApplicationKind{}, autoSpoke(), autoHub(), `{"metadata":{"name":"a","namespace":"argo","uid":"u"},"spec":{"future":` + deep + `}}`},
		{"project, managed", AppProjectKind{}, managedHub(), managedSpoke(), project},
		{"project, autonomous", AppProjectKind{}, autoSpoke(), autoHub(), strings.Replace(project, "argocd", "argo", 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			item, ok := c.kind.Publish(object(t, c.object), c.owner)
			if !ok || !strings.Contains(item.Unsendable, "nested deeper than 256") || item.Key.Name != "a" {
				t.Fatalf("%v, %+v", ok, item)
			}
			again, _ := c.kind.Publish(object(t, strings.Replace(c.object, `"future":`, `"future":[], "later":`, 1)), c.owner)
			if !bytes.Equal(again.Content, item.Content) {
				t.Errorf("the place of what is wrong is part of the content: %s, %s", item.Content, again.Content)
			}
			_, err := c.kind.Merge(nil, item.Key, item.Content, nil, Ownership{}, c.replica)
			expectRejected(t, "to be created", err, engine.Invalid)
			if err == nil || !strings.Contains(err.Error(), "nested deeper than 256") {
				t.Errorf("the reason is lost: %v", err)
			}
		})
	}
}

// A replica of an older release takes it for an object without a spec, and
// refuses it too: it has neither a spec nor anything else to write.
func TestUnsendable_ItemWritesNothing(t *testing.T) {
	item := unsendable(named("a"), "u", &rawjson.Error{Offset: 7, Reason: "x"})
	expectJSON(t, "content", item.Content, `{"frozen":true,"metadata":{"annotations":{"`+UIDMismatchPolicy+`":"upsert"}},"reason":"the object cannot be sent: its JSON is not accepted (x)","uid":"u"}`)
}

//nolint:thelper // these functions are the tests themselves: a failure is to be shown in them
package e2e

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// replicated is a kind in one mode, with its owner and its replica.
type replicated struct {
	name    string
	owner   func(name string) object
	copied  func(name string) object
	content func() map[string]any
	path    string // a field that users change
	first   string // initial value
	second  string // changed value
	forged  string // value written to the replica
}

// kinds lists the replicated kinds of both modes.
func kinds(w *testEnv) []replicated {
	managed, autonomous := w.managed().spoke, w.autonomous().spoke
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	app := func(destination string) func() map[string]any {
		return func() map[string]any {
			return appSpec{repo: w.RepoURL("plain"), destination: destination, namespace: "outage"}.object()
		}
	}
	return []replicated{
		{"managed-app",
			func(name string) object { return w.hub.app("managed", name) },
			func(name string) object { return managed.app(lab.ArgoCDNamespace, name) },
			app("managed"), "spec.source.path", ".", "second", "forged"},
		{"managed-project",
			w.hub.project, managed.project,
			func() map[string]any { return projectOf("managed") }, "spec.description", "of a test", "second", "forged"},
		{"managed-repository",
			w.hub.secret, managed.secret,
			func() map[string]any {
				return secretOf("repository", map[string]string{"project": "outage", "url": "https://git.example/x", "username": "first"})
			}, "data.username", encode("first"), encode("second"), encode("forged")},
		{"autonomous-app",
			func(name string) object { return autonomous.app(lab.ArgoCDNamespace, name) },
			func(name string) object { return w.hub.app("autonomous", name) },
			app("in-cluster"), "spec.source.path", ".", "second", "forged"},
		{"autonomous-project",
			autonomous.project,
			func(name string) object { return w.hub.project("autonomous--" + name) },
			func() map[string]any { return projectOf("in-cluster") }, "spec.description", "of a test", "second", "forged"},
	}
}

// cell is one test of the matrix: prepared before an outage, run during it, and checked afterwards.
type cell struct {
	prepare, during, after func(t *testing.T)
}

// cells returns {create, update, delete} × {owner, replica} for a kind.
func (r replicated) cells(prefix string) map[string]cell {
	both := func(name string) (owner, copied object) {
		name = prefix + "-" + name
		return r.owner(name), r.copied(name)
	}
	exists := func(name string) func(*testing.T) {
		owner, copied := both(name)
		return func(t *testing.T) {
			owner.create(t, r.content())
			copied.becomes(t, field(r.path, r.first))
		}
	}
	change := func(o object, value string) func(*testing.T) {
		return func(t *testing.T) { o.edit(t, func(u *unstructured.Unstructured) { set(u, r.path, value) }) }
	}
	nothing := func(*testing.T) {}
	cells := map[string]cell{}
	add := func(what, name string, fill func(owner, copied object) cell) {
		owner, copied := both(name)
		cells[what] = fill(owner, copied)
	}

	add("created by the owner", "created", func(owner, copied object) cell {
		return cell{nothing, func(t *testing.T) { owner.create(t, r.content()) },
			func(t *testing.T) { copied.becomes(t, field(r.path, r.first)) }}
	})
	add("updated by the owner", "updated", func(owner, copied object) cell {
		return cell{exists("updated"), change(owner, r.second),
			func(t *testing.T) { copied.becomes(t, field(r.path, r.second)) }}
	})
	add("deleted by the owner", "deleted", func(owner, copied object) cell {
		return cell{exists("deleted"), func(t *testing.T) { owner.delete(t) }, func(t *testing.T) { copied.goes(t) }}
	})

	add("created on the other side", "created-there", func(owner, copied object) cell {
		return cell{nothing, func(t *testing.T) { copied.create(t, r.content()) },
			func(t *testing.T) { // an object that is not ours is kept and not replicated
				copied.is(t, field(r.path, r.first), annotation(sourceUID, ""))
				owner.isAbsent(t)
			}}
	})
	add("updated on the other side", "updated-there", func(owner, copied object) cell {
		return cell{exists("updated-there"), change(copied, r.forged),
			func(t *testing.T) {
				copied.becomes(t, field(r.path, r.first))
				owner.is(t, field(r.path, r.first))
			}}
	})
	add("deleted on the other side", "deleted-there", func(owner, copied object) cell {
		return cell{exists("deleted-there"), func(t *testing.T) { copied.delete(t) },
			func(t *testing.T) {
				copied.becomes(t, field(r.path, r.first))
				owner.is(t)
			}}
	})
	return cells
}

// TestOutage_AllChangesConvergeAfterwards is the matrix of outages: all changes on either side, for every kind in both
// modes, while a component is down.
func TestOutage_AllChangesConvergeAfterwards(t *testing.T) {
	outages := []struct {
		name       string
		begin, end func(*testing.T, *testEnv)
	}{
		{"principal",
			func(t *testing.T, w *testEnv) { w.principal.kill(t) },
			func(t *testing.T, w *testEnv) { w.principal.start(t) }},
		{"agents",
			func(t *testing.T, w *testEnv) { w.managed().kill(t); w.autonomous().kill(t) },
			func(t *testing.T, w *testEnv) { w.managed().start(t); w.autonomous().start(t) }},
		{"link",
			func(t *testing.T, w *testEnv) { cutLinks(t, w) },
			func(t *testing.T, w *testEnv) { restoreLinks(t, w) }},
		{"both",
			func(t *testing.T, w *testEnv) { w.principal.kill(t); w.managed().kill(t); w.autonomous().kill(t) },
			func(t *testing.T, w *testEnv) { w.managed().start(t); w.autonomous().start(t); w.principal.start(t) }},
	}
	for _, outage := range outages {
		t.Run(outage.name, func(t *testing.T) {
			w := shared(t)
			w.hub.project("outage").create(t, projectOf("managed")) // AppProject of the repositories
			w.managed().spoke.project("outage").becomes(t)
			all := map[string]cell{"gpg keys": gpgCell(w, outage.name)}
			for _, r := range kinds(w) {
				for name, c := range r.cells("out-" + outage.name) {
					all[r.name+" "+name] = c
				}
			}
			each := func(t *testing.T, do func(*testing.T, cell)) {
				t.Helper()
				for _, c := range all {
					do(t, c)
				}
			}
			each(t, func(t *testing.T, c cell) { c.prepare(t) })
			outage.begin(t, w)
			each(t, func(t *testing.T, c cell) { c.during(t) })
			outage.end(t, w)
			w.connected(t)
			for name, c := range all {
				t.Run(name, c.after)
			}
		})
	}
}

func gpgCell(w *testEnv, name string) cell {
	hub, spoke := w.hub.configMap("argocd-gpg-keys-cm"), w.managed().spoke.configMap("argocd-gpg-keys-cm")
	return cell{
		func(t *testing.T) { t.Cleanup(func() { hub.patch(t, `{"data":null}`) }) },
		func(t *testing.T) {
			hub.patch(t, `{"data":{"`+name+`":"good"}}`)
			spoke.delete(t)
		},
		func(t *testing.T) { spoke.becomes(t, field("data."+name, "good")) },
	}
}

func cutLinks(t testing.TB, w *testEnv) {
	t.Helper()
	for _, a := range w.agents {
		if err := a.link.Cut(faultproxy.Refuse); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range w.agents {
		a.disconnected(t)
	}
}

func restoreLinks(t testing.TB, w *testEnv) {
	t.Helper()
	for _, a := range w.agents {
		if err := a.link.Restore(); err != nil {
			t.Fatal(err)
		}
	}
}

// While the hub is unreachable, a managed agent restores what users of its cluster change or delete.
func TestOffline_LocalChangesAreReverted(t *testing.T) {
	w := shared(t)
	w.hub.project("outage").create(t, projectOf("managed"))
	hubKeys, keys := w.hub.configMap("argocd-gpg-keys-cm"), w.managed().spoke.configMap("argocd-gpg-keys-cm")
	hubKeys.patch(t, `{"data":{"OFFLINE":"good"}}`)
	t.Cleanup(func() { hubKeys.patch(t, `{"data":null}`) })
	keys.becomes(t, field("data.OFFLINE", "good"))
	var list []replicated
	for _, r := range kinds(w) {
		if strings.HasPrefix(r.name, "managed-") {
			r.owner("offline").create(t, r.content())
			r.copied("offline").becomes(t, field(r.path, r.first))
			list = append(list, r)
		}
	}
	w.hub.secret("withdrawn").create(t, secretOf("repository", map[string]string{"project": "outage", "url": "https://git.example/y"}))
	withdrawn := w.managed().spoke.secret("withdrawn")
	withdrawn.becomes(t)
	w.hub.secret("withdrawn").delete(t)
	withdrawn.goes(t)

	cutLinks(t, w)
	restored := false
	t.Cleanup(func() {
		if !restored {
			restoreLinks(t, w)
		}
	})
	for _, r := range list {
		r.copied("offline").edit(t, func(u *unstructured.Unstructured) { set(u, r.path, r.forged) })
		r.copied("offline").becomes(t, field(r.path, r.first))
	}
	keys.patch(t, `{"data":{"OFFLINE":"forged","MINE":"x"}}`)
	keys.becomes(t, field("data.OFFLINE", "good"), field("data.MINE", ""))
	for _, r := range list {
		uid := r.copied("offline").get(t).GetUID()
		r.copied("offline").delete(t)
		r.copied("offline").becomes(t, field(r.path, r.first), func(u *unstructured.Unstructured) error {
			if u.GetUID() == uid {
				return errors.New("it is not deleted yet")
			}
			return nil
		})
	}
	withdrawn.isAbsent(t)

	restored = true
	restoreLinks(t, w)
	w.connected(t)
	for _, r := range list {
		r.owner("offline").is(t, field(r.path, r.first))
		r.copied("offline").is(t, field(r.path, r.first))
	}
}

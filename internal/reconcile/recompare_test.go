package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

func TestCredentials_LateArrivalRefreshesApplicationsOnce(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, projectRef("team"), project("team", `{}`, onlyW1))
	for _, name := range []string{"waits", "fails-later", "fine"} {
		p.user(kind.Hub, ref("w1", name), app("w1", name, "team", "r1"))
	}
	p.user(kind.Hub, ref("w1", "other"), app("w1", "other", "default", "r1"))
	fail := func(name string) { // as Argo CD's controller reports it
		o := p.stores[kind.Spoke].objects[ref("argocd", name)]
		p.user(kind.Spoke, ref("argocd", name), strings.Replace(string(o.Raw()), `"spec":`, `"status":{"conditions":[{"type":"ComparisonError","message":"authentication required"}]},"spec":`, 1))
	}
	pending := func() string {
		out := ""
		for _, name := range []string{"waits", "fails-later", "fine", "other"} {
			if kind.RefreshPending(p.stores[kind.Spoke].objects[ref("argocd", name)]) {
				out += name + " "
			}
		}
		return out
	}
	done := func() { // the controller takes the annotation away
		for ref, o := range p.stores[kind.Spoke].objects {
			if ref.Resource == kind.Applications {
				p.user(kind.Spoke, ref, strings.Replace(string(o.Raw()), `"argocd.argoproj.io/refresh":"normal"`, `"x":"y"`, 1))
			}
		}
	}
	fail("waits")
	fail("other")
	secret := func(password string) {
		p.user(kind.Hub, kind.Ref{Resource: kind.Secrets, Namespace: "argocd", Name: "repo"}, fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"repo","namespace":"argocd","labels":{"argocd.argoproj.io/secret-type":"repository"}},"data":{"project":"dGVhbQ==","url":"aHR0cHM6Ly9naXQveA==","password":%q}}`, password))
	}
	secret("MQ==")
	if got := pending(); got != "waits " {
		t.Fatalf("asked to be compared again: %q", got)
	}
	fail("fails-later") // its comparison had begun before
	if got := pending(); got != "waits fails-later " {
		t.Fatalf("asked to be compared again: %q", got)
	}
	done()
	p.advanceTime(5 * engine.Second)
	if got := pending(); got != "" {
		t.Fatalf("asked a second time: %q", got)
	}
	secret("Mg==")
	if got := pending(); got != "waits fails-later " {
		t.Errorf("asked after another change of the credentials: %q", got)
	}
	done()
	p.advanceTime(2 * recompareFor)
	fail("fine")
	if got := pending(); got != "" {
		t.Errorf("asked long afterwards: %q", got)
	}
	if load := p.sides[kind.Spoke].credentialArrivals; len(load.at)+len(load.asked) > 0 {
		t.Errorf("what is long ago is kept: %+v", load)
	}
}

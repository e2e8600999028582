package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/fleetui"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// host is a page that provides what Argo CD provides to an extension, with the React of Argo CD 3.5 or of older releases.
type host struct {
	*httptest.Server
	fleetURL string
	status   int // of the extension proxy; if 0, it answers
	mu       sync.Mutex
	requests []http.Header
}

// bundles are the scripts of the host by release of React.
var bundles = map[string]func() ([]byte, error){"19": sync.OnceValues(func() ([]byte, error) { return bundle("19") }), "16": sync.OnceValues(func() ([]byte, error) {
	return bundle("16", "--alias:react=react-16", "--alias:react-dom=react-dom-16")
})}

func bundle(react string, options ...string) ([]byte, error) {
	directory := root + "/ui/node_modules"
	build := exec.Command(directory+"/.bin/esbuild", append([]string{"testdata/host" + react + ".js", "--bundle", `--define:process.env.NODE_ENV="development"`}, options...)...)
	build.Env = append(os.Environ(), "NODE_PATH="+directory)
	return build.Output()
}

func hosting(t *testing.T, react string) *host {
	t.Helper()
	script, err := bundles[react]()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{}
	mux := http.NewServeMux()
	// One file, so that the extension always runs before React of Argo CD 3.5 renders.
	mux.HandleFunc("GET /argocd.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = w.Write(slices.Concat(script, fleetui.Extension(h.fleetURL)))
	})
	mux.HandleFunc("GET /extensions/argocd-agent/v1/application", h.application)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><html lang="en"><head><title>Argo CD</title><base href="/"></head><body><main><h1>Argo CD</h1><div class="theme-light" id="app"></div></main><script src="argocd.js"></script></body></html>`)
	})
	h.Server = httptest.NewServer(mux)
	t.Cleanup(h.Close)
	return h
}

func (h *host) application(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, r.Header.Clone())
	if h.status != 0 {
		http.Error(w, "permission denied", h.status)
		return
	}
	app := application("d-held", "web")
	app.Conditions, app.InSync = []string{"AgentError"}, now.Add(-12*time.Second)
	write(w, row{"application": app, "agent": held("d-held")})
}

const resource = `{kind: 'Application', metadata: {namespace: 'd-held', name: 'web'}, spec: {project: 'shop'}, status: {conditions: [{type: 'AgentError', message: 'rejected: the quota is exceeded'}, {type: 'SyncError', message: 'of Argo CD'}]}}`
const parent = `{kind: 'Application', metadata: {namespace: 'argocd', name: 'apps'}, spec: {project: 'default'}}`

func TestExtension_TabShowsAgent(t *testing.T) {
	t.Parallel()
	for _, react := range []string{"19", "16"} {
		t.Run("React "+react, func(t *testing.T) {
			h := hosting(t, react)
			b := open(t, h.URL+"/applications/argocd/apps")
			b.until("window.show && registered() === 'Agent'") // without an address there is no page in the sidebar
			b.do("show('tab', {application: " + parent + ", resource: " + resource + ", tree: {}})")
			b.sees("Agent d-held, managed", "Connected, in sync 12s ago", "rejected: the quota is exceeded", "Confirmation required: 42 deletions of application", "argocd-agentctl pending confirm 5f2c9b0e7d1a4c33",
				"registry.example.com/shop/web:1.27.3", "principal-7", "ConfirmationRequired")
			if text := js[string](b, "document.body.innerText"); strings.Contains(text, "of Argo CD") {
				t.Error("a condition of Argo CD is shown as one of the agent")
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if one := h.requests[0]; one.Get("Argocd-Application-Name") != "d-held:web" || one.Get("Argocd-Project-Name") != "shop" || one.Get("Authorization") != "" {
				t.Errorf("headers %v", one)
			}
			b.accessible("tab")
			b.do("document.getElementById('app').className = 'theme-dark'")
			b.accessible("dark tab")
			b.quiet()
		})
	}
}

func TestExtension_TabExplainsErrors(t *testing.T) {
	t.Parallel()
	h := hosting(t, "19")
	for status, want := range map[int]string{403: "p, ROLE, extensions, invoke, argocd-agent, allow", 404: "argocd-server does not forward requests to argocd-agent", 502: "The principal does not answer: permission denied."} {
		h.mu.Lock()
		h.status = status
		h.mu.Unlock()
		b := open(t, h.URL)
		b.until("window.show && registered()")
		b.do("show('tab', {application: " + resource + ", tree: {}})")
		b.sees(want)
	}
}

// An extension that fails would break the whole UI.
func TestExtension_WithOlderArgoCD(t *testing.T) {
	t.Parallel()
	h := hosting(t, "16")
	h.fleetURL = "https://hub.example.com/"
	for missing, want := range map[string]string{"registerSystemLevelExtension": "Agent", "registerResourceExtension": "Fleet", "all": ""} {
		b := open(t, h.URL+"/?missing="+missing)
		b.until("window.show && window.recorded.length && registered() === " + quote(want))
		for _, one := range js[[]string](b, "window.recorded") {
			if !strings.HasPrefix(one, "warn: argocd-agent: this Argo CD has no register") {
				t.Errorf("without %s: console %q", missing, one)
			}
		}
	}
}

// The page in the sidebar uses the endpoint of the principal, on another origin.
func TestExtension_SidebarShowsFleet(t *testing.T) {
	t.Parallel()
	for _, react := range []string{"19", "16"} {
		t.Run("React "+react, func(t *testing.T) {
			h, s := hosting(t, react), small(t)
			s.token, s.about["login"], s.about["argocd"], s.origin = "right", "token", "", h.URL
			h.fleetURL = s.URL
			b := open(t, h.URL+"/fleet")
			b.until("window.show && registered() === 'Agent Fleet'")
			b.do("show('page', {})")
			b.fill("input[type=password]", "right")
			b.run(chromedp.KeyEvent(kb.Enter))
			b.sees("6\nagents", "live")
			b.names("d-held b-lost c-diverged a-fine e-new f-degraded")
			b.fill(".find input", "f-deg")
			b.names("f-degraded")
			b.accessible("sidebar")
			b.do("location.hash = '#/applications/f-degraded/api'")
			b.sees("SyncError")
			if got := js[string](b, "Array.from(document.querySelectorAll('a')).find((e) => e.innerText === 'Open in Argo CD').href"); got != h.URL+"/applications/f-degraded/api" {
				t.Error(got)
			}
			b.do("document.getElementById('app').className = 'theme-dark'")
			b.accessible("dark sidebar")
			b.quiet()
		})
	}
}

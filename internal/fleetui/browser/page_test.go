package browser

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

func TestBundles_AreBuiltFromSources(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), root+"/hack/ui", "--check").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func small(t *testing.T) *server {
	t.Helper()
	s := serve(t, fine("a-fine"), disconnected("b-lost"), diverged("c-diverged"), held("d-held"), row{"name": "e-new", "state": "never-connected", "applications": 0}, fine("f-degraded"))
	for _, agent := range []string{"a-fine", "b-lost", "d-held"} {
		s.model.Set(application(agent, "web"))
	}
	bad := application("f-degraded", "api")
	bad.Health, bad.Sync, bad.Labels, bad.Conditions = "Degraded", "OutOfSync", map[string]string{"team": "blue"}, []string{"SyncError"}
	s.model.Set(bad)
	s.timeline = []row{{"time": ago(time.Minute), "type": "Held", "message": "42 deletions wait"}, {"time": ago(time.Hour), "type": "Connected", "message": "session 7 on principal-7"}}
	return s
}

func TestPage_ShowsAgents(t *testing.T) {
	t.Parallel()
	b := open(t, small(t).URL)
	b.sees("6\nagents", "4\nconnected", "2\ndiverged", "1\ndegraded", "1\ndisconnected", "1\nholds", "1\nnever connected", "the hub", "live")
	b.names("d-held b-lost c-diverged a-fine e-new f-degraded")
	b.sees("12s ago", "20d", "managed")
	// The heat map has the worst first, and each state has its sign.
	if got := js[string](b, "Array.from(document.querySelectorAll('[role=gridcell]')).map((e) => e.ariaLabel + e.innerText).join(', ')"); got !=
		"b-lost: disconnected×, d-held: held?, f-degraded: degraded!, c-diverged: diverged≠, a-fine: connected·, e-new: never connected or suspended–" {
		t.Error(got)
	}
	b.quiet()
}

func TestPage_UpdatesRows(t *testing.T) {
	t.Parallel()
	s := serve(t, fine("a"), fine("b"), fine("c"))
	b := open(t, s.URL)
	b.names("a b c")
	s.set(disconnected("c"))
	b.names("c a b")
	s.remove("a")
	b.names("c b")
	s.set(fine("d"))
	b.names("c b d")
	b.sees("3\nagents")
}

func TestPage_SortsFiltersAndKeepsViewInURL(t *testing.T) {
	t.Parallel()
	b := open(t, serve(t, fine("x").with("applications", 9, "version", "v2"), disconnected("y"), fine("z")).URL)
	b.names("y x z")
	b.run(chromedp.Click(`//th/button[.="Agent"]`))
	b.names("x y z")
	b.run(chromedp.Click(`//th/button[.="Apps"]`))
	b.names("y z x")
	b.run(chromedp.Click(`//th/button[.="Apps"]`))
	b.names("x y z")
	b.fill(".find input", "V1.4 DISCONNECTED")
	b.names("y")
	b.sees("1 of 3 agents")
	b.run(chromedp.Reload())
	b.names("y") // the URL carries the view
	b.fill(".find input", "")
	b.names("x y z")
	b.press("2 connected")
	b.names("x z")
	if got := js[string](b, "document.querySelector('[aria-pressed=true]').innerText"); !strings.Contains(got, "connected") {
		t.Errorf("pressed: %q", got)
	}
	b.press("2 connected")
	b.names("x y z")
	b.quiet()
}

func TestPage_AgentShowsHoldsConditionsTimelineApplications(t *testing.T) {
	t.Parallel()
	s := small(t)
	b := open(t, s.URL+"/#/agents/d-held")
	b.sees("Agent d-held", "Confirmation required: 42 deletions of application", "more than half of the scope", "argocd-agentctl --principal-context hub pending confirm 5f2c9b0e7d1a4c33",
		"argocd-agentctl --principal-context hub diff d-held --agent-context CONTEXT", "ConfirmationRequired", "principal-7", "d-held on the hub", "default of the principal", "Held 42 deletions wait", "Connected session 7 on principal-7")
	b.names("web")
	s.set(fine("d-held"))
	b.until("!document.body.innerText.includes('Confirmation required')")
	b.run(chromedp.Click(`//nav/a[.="Agents"]`))
	b.sees("6\nagents")
	b.run(chromedp.Navigate(s.URL + "/#/agents/nothing"))
	b.sees("There is no agent nothing, or you may not see it.")
}

func TestPage_CopiesCommands(t *testing.T) {
	t.Parallel()
	b := open(t, small(t).URL+"/#/agents/d-held")
	b.sees("pending confirm")
	b.do("navigator.clipboard.writeText = async (text) => { window.copied = text }")
	b.run(chromedp.Click(chromedp.CSS(".command button")))
	b.sees("Copied")
	if got := js[string](b, "window.copied"); got != "argocd-agentctl --principal-context hub pending confirm 5f2c9b0e7d1a4c33" {
		t.Error(got)
	}
}

func TestPage_SearchesGroupsAndOpensApplications(t *testing.T) {
	t.Parallel()
	s := small(t)
	b := open(t, s.URL+"/#/applications")
	b.sees("4 Applications")
	b.fill("input.query", "helth=Degraded")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.sees("query, position 1: unknown field \"helth\"", "helth=Degraded\n^")
	b.fill("input.query", "health=Healthy  sync>1")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.sees("health=Healthy  sync>1\n                    ^")
	b.fill("input.query", "")
	b.fill("input[list]", "label.team")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.sees("red", "blue")
	b.press("blue")
	b.names("api")
	b.until("location.hash === '#/applications?query=label.team%3Dblue'")
	b.press("api")
	b.sees("Application f-degraded/api", "Degraded", "OutOfSync", "4f2a9c1d0e3b5a7788990011223344556677aabb", "registry.example.com/shop/web:1.27.3", "SyncError", "12s ago", "argocd-agentctl --principal-context hub search 'namespace=f-degraded name=api'")
	if got := js[string](b, "Array.from(document.querySelectorAll('a')).find((e) => e.innerText === 'Open in Argo CD').href"); got != "https://argocd.example.com/applications/f-degraded/api" {
		t.Error(got)
	}
	b.press("f-degraded")
	b.sees("Agent f-degraded")
	b.quiet()
}

func TestPage_ApplicationsFollowChanges(t *testing.T) {
	t.Parallel()
	s := small(t)
	b := open(t, s.URL+"/#/applications?query=health%3DDegraded")
	b.names("api")
	bad := application("a-fine", "web")
	bad.Health = "Degraded"
	s.setApplication(bad)
	b.names("web api")
}

func TestPage_LoadsMoreApplications(t *testing.T) {
	t.Parallel()
	s := serve(t, fine("a"))
	for i := range 250 {
		s.model.Set(application("a", fmt.Sprintf("app-%03d", i)))
	}
	b := open(t, s.URL+"/#/applications")
	b.press("Show more (150 left)")
	b.press("Show more (50 left)")
	b.until("document.querySelector('.table table').ariaRowCount === '251'")
	b.until("!document.body.innerText.includes('Show more')")
}

func TestPage_WithoutSearchShowsAgentsOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, fine("a"))
	s.about["applications"] = false
	b := open(t, s.URL)
	b.names("a")
	b.press("Applications")
	b.sees("The search API of the principal is off")
	b.run(chromedp.Navigate(s.URL + "/#/agents/a"))
	b.sees("Timeline", "Sessions and holds: not available here.")
	for path, n := range s.requests {
		if strings.HasPrefix(path, "/v1/applications") || strings.HasPrefix(path, "/v1/counts") {
			t.Errorf("%d requests of %s", n, path)
		}
	}
}

const evil = `</td><img src=x onerror=alert(1)><script>alert(2)</script>` + "\u202e"

func TestPage_WritesUntrustedTextAsText(t *testing.T) {
	t.Parallel()
	hostile := fine("evil").with("version", evil, "refused", evil, "principal", evil, "labels", evil, "mode", evil, "state", evil, "pending", evil, "diverged", 1, "connected", false,
		"holds", []row{{"description": evil, "reason": evil, "id": evil}}, "conditions", []row{{"type": evil, "status": evil, "reason": evil, "message": evil}})
	s := serve(t, hostile, row{"name": "__proto__", "state": "disconnected", "applications": 0}, row{"name": "constructor", "state": "toString", "applications": 0})
	s.about["hub"], s.about["argocd"] = evil, "javascript:alert(1)"
	s.timeline = []row{{"time": ago(time.Minute), "type": evil, "message": evil}}
	app := application("evil", "web")
	app.Health, app.Images, app.Labels, app.Project = evil, []string{evil}, map[string]string{evil: evil}, evil
	s.model.Set(app)
	b := open(t, s.URL)
	b.until("document.querySelectorAll('td.name a').length === 3")
	for view, least := range map[string]int{"#/agents/evil": 12, "#/applications": 2, "#/applications/evil/web": 4, "#/applications?groupBy=project": 3} {
		b.do("location.hash = " + quote(view))
		b.until(fmt.Sprintf("document.body.textContent.split(%s).length > %d", quote(evil), least))
		if n := js[int](b, "document.querySelectorAll('img, script:not([src]), iframe, object, a[href^=javascript]').length"); n != 0 {
			t.Errorf("%s: text became markup", view)
		}
	}
	b.quiet()
}

func TestPage_PolicyBlocksMarkup(t *testing.T) {
	t.Parallel()
	b := open(t, serve(t, fine("a")).URL)
	b.names("a")
	for _, attempt := range []string{"document.body.innerHTML = '<b>x</b>'", "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')"} {
		if got := js[string](b, "(() => { try { "+attempt+"; return 'allowed' } catch { return 'blocked' } })()"); got != "blocked" {
			t.Errorf("%s is %s", attempt, got)
		}
	}
}

func TestPage_ReconnectsAfterNetworkLoss(t *testing.T) {
	t.Parallel()
	s := serve(t, fine("a"), fine("b"))
	b := open(t, s.URL)
	b.names("a b")
	b.sees("live")
	s.lose()
	b.sees("The connection is lost.", "old. Reconnecting …", "disconnected")
	if got := js[string](b, "document.querySelector('header [role=status]').innerText"); !strings.Contains(got, "The connection is lost") {
		t.Errorf("a screen reader reads %q", got)
	}
	if !js[bool](b, "Boolean(document.querySelector('.old .table'))") {
		t.Error("the data is not marked as old")
	}
	b.names("a b") // rows stay
	b.inLightAndDark("disconnected")
	s.restore()
	s.set(disconnected("b"))
	b.do("window.dispatchEvent(new Event('online'))")
	b.names("b a")
	b.until("!document.body.innerText.includes('The connection is lost')")
	s.mu.Lock()
	if last := s.resumed[len(s.resumed)-1]; last == "" {
		t.Error("the stream does not resume at its cursor")
	}
	s.send(row{"stale": "the API server of the hub is unreachable"})
	s.mu.Unlock()
	b.sees("This page may be out of date: the API server of the hub is unreachable")
}

// A server ends streams to check the access of their clients again.
func TestPage_ContinuesEndedStream(t *testing.T) {
	t.Parallel()
	s := serve(t, fine("a"))
	b := open(t, s.URL)
	b.names("a")
	b.do("new MutationObserver(() => { window.lost ||= document.body.innerText.includes('connection is lost') }).observe(document.body, {subtree: true, childList: true, characterData: true})")
	s.mu.Lock()
	s.rows["b"], s.order = fine("b"), append(s.order, "b")
	close(s.end)
	s.end = make(chan struct{})
	s.mu.Unlock()
	b.names("a b")
	if js[bool](b, "Boolean(window.lost)") {
		t.Error("the connection is reported as lost")
	}
	s.mu.Lock()
	s.refused = "user \"jane\" cannot get any of these Agents"
	close(s.end)
	s.end = make(chan struct{})
	s.mu.Unlock()
	b.sees("The server sends no agents: user \"jane\" cannot get any of these Agents.")
}

func TestPage_AsksForToken(t *testing.T) {
	t.Parallel()
	s := small(t)
	s.token, s.about["login"], s.about["user"] = "right", "token", "jane"
	b := open(t, s.URL)
	b.sees("Enter a token of the hub’s API server", "kubectl create token")
	b.inLightAndDark("login")
	b.fill("input[type=password]", "wrong")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.sees("The hub does not accept this token.")
	b.fill("input[type=password]", "right")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.sees("6\nagents", "jane")
	if js[int](b, "localStorage.length + sessionStorage.length + document.cookie.length") != 0 {
		t.Error("the token is stored")
	}
	s.mu.Lock()
	s.token = "another"
	s.mu.Unlock()
	b.press("Applications")
	b.sees("The hub does not accept this token. It may have expired.")
	if strings.Contains(js[string](b, "document.body.innerText"), "a-fine") {
		t.Error("agents are shown without a token")
	}
}

func TestPage_WorksWithKeyboard(t *testing.T) {
	t.Parallel()
	b := open(t, small(t).URL)
	b.sees("6\nagents")
	focused := func() string {
		return js[string](b, "document.activeElement.ariaLabel || document.activeElement.innerText")
	}
	tabTo := func(want string) {
		t.Helper()
		for range 40 {
			if strings.HasPrefix(focused(), want) {
				if js[string](b, "getComputedStyle(document.activeElement).outlineStyle") == "none" {
					t.Errorf("the focus on %q is not visible", want)
				}
				return
			}
			b.run(chromedp.KeyEvent(kb.Tab))
		}
		t.Fatalf("cannot reach %q, the focus is on %q", want, focused())
	}
	tabTo("1\ndisconnected")
	b.run(chromedp.KeyEvent(" "))
	b.names("b-lost")
	b.run(chromedp.KeyEvent(" "))
	tabTo("b-lost: disconnected")
	for key, want := range map[string]string{kb.ArrowRight: "d-held: held", kb.End: "e-new: never", kb.Home: "b-lost: disconnected", kb.ArrowDown: "e-new: never"} {
		b.run(chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(key))
		b.until(fmt.Sprintf("(document.activeElement.ariaLabel || '').startsWith(%s)", quote(want)))
	}
	b.run(chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.Enter))
	b.sees("Agent d-held")
	b.until("document.activeElement.innerText === 'Agent d-held'") // a screen reader reads the new view
	tabTo("Copy the command")
	b.do("history.back()")
	b.sees("6\nagents")
	tabTo("Table of agents") // the table scrolls with the keyboard
	tabTo("d-held")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.sees("Agent d-held")
}

func TestPage_IsAccessible(t *testing.T) {
	t.Parallel()
	s := small(t)
	for view, text := range map[string]string{"": "6\nagents", "#/agents/d-held": "Held 42 deletions wait", "#/applications?groupBy=label.team": "red", "#/applications/f-degraded/api": "SyncError", "#/applications?query=x%3D1": "position 1", "#/agents/nothing": "There is no agent"} {
		b := open(t, s.URL+"/"+view)
		b.sees(text)
		b.inLightAndDark("view " + view)
		b.quiet()
	}
}

func many(n int) []row {
	rows := make([]row, n)
	for i := range rows {
		name := fmt.Sprintf("cluster-%05d", i)
		switch {
		case i%97 == 0:
			rows[i] = disconnected(name)
		case i%41 == 0:
			rows[i] = diverged(name)
		default:
			rows[i] = fine(name)
		}
	}
	return rows
}

// The document has only what is in sight, so it does not grow with the fleet.
func TestPage_Shows10000Agents(t *testing.T) {
	t.Parallel()
	s := serve(t, many(10_000)...)
	b := open(t, s.URL)
	b.sees("10000\nagents", "104\ndisconnected", "live")
	t.Logf("first paint after %.0f ms, first agents after %.0f ms, all after %.0f ms", js[float64](b, "performance.getEntriesByName('first-contentful-paint')[0].startTime"), js[float64](b, "window.firstAgent"), js[float64](b, "performance.now()"))
	if n := js[int](b, "document.querySelectorAll('*').length"); n > 4000 {
		t.Errorf("the document has %d elements", n)
	}
	b.until("document.querySelector('.table table').ariaRowCount === '10001'")
	b.until("document.elementFromPoint(100, innerHeight - 5).closest('tr:not(.space)')") // rows fill the table
	b.do("document.querySelector('.table').scrollTo(0, 1e9)")
	b.until("Array.from(document.querySelectorAll('.table tr')).some((e) => e.ariaRowIndex === '10001')")
	b.do("document.querySelector('[role=gridcell][tabindex=\"0\"]').focus()")
	b.run(chromedp.KeyEvent(kb.End))
	b.until("document.activeElement.ariaLabel === 'cluster-09999: connected'")
	b.fill(".find input", "cluster-0777")
	b.names("cluster-07770 cluster-07771 cluster-07772 cluster-07773 cluster-07774 cluster-07775 cluster-07776 cluster-07777 cluster-07778 cluster-07779")
	b.accessible("10,000 agents")
	b.quiet()
}

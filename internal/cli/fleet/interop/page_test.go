package interop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/cli/fleet"
)

func fine(name string) fleet.Row {
	return fleet.Row{Name: name, State: "connected", Connected: true, Since: now - 3*86400, Applications: 7, Confirmed: now - 30, Expires: now + 20*86400,
		Version: "v1", Mode: "managed", Namespace: name}
}

func disconnected(name string) fleet.Row {
	r := fine(name)
	r.State, r.Connected, r.Urgency, r.Since = "disconnected", false, 4, now-7200
	return r
}

func TestPage_ShowsAgents(t *testing.T) {
	skew := int64(-95)
	diverged := fine("d-diverged")
	diverged.Diverged, diverged.Unacked, diverged.Expires, diverged.Skew, diverged.Urgency = 3, now-150, now+1800, &skew, 2
	b := opened(t, fine("a-fine"), disconnected("b-disconnected"), fleet.Row{Name: "c-new", State: "never-connected", Urgency: 1}, diverged)
	b.sees("seen()", `b-disconnected | disconnected | 120m | managed | 7 | 0 | - | 30s ago | - | 20d | v1
d-diverged | connected | 3d | managed | 7 | 3 | 2m30s | 30s ago | -95s | 30m | v1
c-new | never-connected | - | - | 0 | 0 | - | - | - | - | -
a-fine | connected | 3d | managed | 7 | 0 | - | 30s ago | - | 20d | v1`)
	b.sees("counts()", "agents 4, connected 2, disconnected 1, write outage 0, diverged 1, held 0, certificate expires 1, refused 0, clock skew 1, suspended 0, never connected 1")
	b.sees("$('hub').textContent + ', ' + document.title + ', ' + $('live').textContent", "the hub, Fleet: the hub, live")

	b.js("clock += 60000; timers[0][0](); frame()") // ages are updated without events
	b.sees("seen().split('\\n')[3]", "a-fine | connected | 3d | managed | 7 | 0 | - | 90s ago | - | 19d | v1")
}

func TestPage_HighlightsWriteOutage(t *testing.T) {
	full := fine("full")
	full.State, full.Urgency = "write-outage", 4
	b := opened(t, fine("a"), full)
	b.sees("names() + ': ' + $('body').childNodes[0].childNodes[1].className", "full a: bad")
	b.js("press('1write outage')")
	b.sees("names()", "full")
}

func TestPage_UpdatesRows(t *testing.T) {
	b := opened(t, fine("a"), fine("b"), fine("c"))
	b.js("const before = $('body').childNodes.slice(); moves = 0")
	b.set(disconnected("c"))
	b.receive()
	b.sees("names()", "c a b")
	b.sees("String($('body').childNodes[0] === before[2] && $('body').childNodes[1] === before[0])", "true")
	b.sees("String(moves < 8)", "true") // unchanged rows are not drawn again
	b.state.Remove("a")
	b.receive()
	b.sees("names()", "c b")
	b.set(fine("d"))
	b.receive()
	b.sees("names() + counts().slice(0, 9)", "c b dagents 3,")
}

func TestPage_SortsAndFilters(t *testing.T) {
	x, y := fine("x"), disconnected("y")
	x.Applications, x.Version = 9, "v2"
	b := opened(t, x, y, fine("z"))
	b.sees("names()", "y x z")
	b.js("press('Agent')")
	b.sees("names()", "x y z")
	b.js("press('Agent')")
	b.sees("names()", "z y x")
	b.js("press('Apps')") // descending
	b.sees("names()", "x y z")
	b.js("press('Version')")
	b.sees("names()", "y z x")
	b.js("type('  V1   DISCONNECTED ')")
	b.sees("names() + ', ' + $('shown').textContent", "y, 1 of 3")
	b.js("type('no such thing')")
	b.sees("names()", "")
	b.js("type(''); press('2connected')")
	b.sees("names() + ' ' + button('2connected').attributes['aria-pressed']", "z x true")
	b.js("press('2connected')")
	b.sees("names()", "y z x")
}

func TestPage_ExpandedRowShowsCommands(t *testing.T) {
	r := fine("w1")
	r.State, r.Urgency, r.Diverged, r.Principal = "held", 5, 42, "principal-7"
	r.Holds = []fleet.Hold{{Description: "42 deletions of application", ID: "5f2c9b0e7d1a4c33"}, {Description: "something"}}
	r.Conditions = []fleet.Condition{{Type: "Held", Status: "True", Since: now - 60, Reason: "ConfirmationRequired", Message: "42 deletions"}}
	b := opened(t, r, fine("w2"))
	b.js("press('w1')")
	b.sees("root.find((e) => e.tag === 'code').map((e) => e.textContent).join('\\n')", `argocd-agentctl pending confirm 5f2c9b0e7d1a4c33
argocd-agentctl pending w1
argocd-agentctl diff w1 --agent-context CONTEXT`)
	text := b.js("$('body').childNodes[1].textContent")
	for _, want := range []string{"42 deletions of application", "To confirm, run: ", "42 items differ", "principal-7", "w1 on the hub", "default of the principal", "2027-01-15 07:59:00 UTC", "ConfirmationRequired"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	b.js("const detail = $('body').childNodes[1]")
	b.set(disconnected("w2"))
	b.receive()
	b.sees("String(detail === $('body').childNodes[1]) + names()", "truew1 w2") // a user may select text in it
	r.Holds, r.Diverged = nil, 0
	b.set(r)
	b.receive()
	b.sees("root.find((e) => e.className === 'detail').length + ' ' + root.find((e) => e.tag === 'code').length", "1 0")
	b.js("press('w1')")
	b.sees("root.find((e) => e.className === 'detail').length + names()", "0w1 w2")
}

func TestPage_WritesUntrustedTextAsText(t *testing.T) {
	evil := `</td><img src=x onerror=alert(1)><script>alert(2)</script>` + "\u202e"
	r := fine("evil")
	r.Version, r.Refused, r.Principal, r.Labels, r.Mode, r.State = evil, evil, evil, evil, evil, evil
	r.Holds = []fleet.Hold{{Description: evil}}
	r.Conditions = []fleet.Condition{{Type: evil, Status: evil, Reason: evil, Message: evil}}
	b := opened(t, r, fleet.Row{Name: "__proto__", State: "disconnected"}, fleet.Row{Name: "constructor", State: "toString"})
	b.js("press('evil')")
	b.sees("root.find((e) => e.tag === 'img').length + ' ' + root.find((e) => e.tag === 'script').length", "0 1") // the script of the page
	if text := b.js("$('body').textContent"); strings.Count(text, evil) < 8 {
		t.Errorf("the text is changed: %s", text)
	}
	b.sees("names()", "__proto__ constructor evil")
}

func TestPage_ShowsStaleState(t *testing.T) {
	b := opened(t, fine("a"))
	b.sees("String($('warning').hidden)", "true")
	b.state.SetStale("connection refused")
	b.receive()
	b.sees("$('warning').textContent + $('warning').hidden", "This page may be out of date: connection refusedfalse")
	b.state.SetStale("")
	b.receive()
	b.sees("String($('warning').hidden)", "true")
	b.js("streams[0].readyState = 0; streams[0].onerror()")
	b.sees("$('live').textContent + $('warning').hidden + timers.length", "disconnectedfalse1") // the browser reconnects
	b.js("streams[0].readyState = 2; streams[0].onerror(); timers[1][0]()")
	b.sees("streams.length + streams[1].url", "2events")
	b.sees("names()", "a") // rows stay
}

func TestPage_LimitsRows(t *testing.T) {
	var all []fleet.Row
	for i := range 1000 {
		all = append(all, fine(fmt.Sprintf("a%04d", i)))
	}
	b := opened(t, all...)
	b.sees("$('body').childNodes.length + ' ' + $('more').textContent + ' ' + $('more').hidden", "300 Show 300 more of 700 false")
	b.js("press('Show 300 more of 700')")
	b.sees("$('body').childNodes.length + ' ' + $('more').textContent", "600 Show 300 more of 400")
	b.js("type('a099')")
	b.sees("names() + $('more').hidden", "a0990 a0991 a0992 a0993 a0994 a0995 a0996 a0997 a0998 a0999true")
}

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

func away(name string) fleet.Row {
	r := fine(name)
	r.State, r.Connected, r.Urgency, r.Since = "away", false, 4, now-7200
	return r
}

func TestTheFleetIsSeen(t *testing.T) {
	skew := int64(-95)
	trouble := fine("d-trouble")
	trouble.Diverged, trouble.Unacked, trouble.Expires, trouble.Skew, trouble.Urgency = 3, now-150, now+1800, &skew, 2
	b := opened(t, fine("a-fine"), away("b-away"), fleet.Row{Name: "c-new", State: "never", Urgency: 1}, trouble)
	b.sees("seen()", `b-away | away | 120m | managed | 7 | 0 | - | 30s | - | 20d | v1
d-trouble | connected | 3d | managed | 7 | 3 | 2m30s | 30s | -95s | 30m | v1
c-new | never | - | - | 0 | 0 | - | - | - | - | -
a-fine | connected | 3d | managed | 7 | 0 | - | 30s | - | 20d | v1`)
	b.sees("counts()", "agents 4, connected 2, away 1, takes no writes 0, diverged 1, held back 0, certificate expires 1, refused 0, clock wrong 1, suspended 0, never connected 1")
	b.sees("$('hub').textContent + ', ' + document.title + ', ' + $('live').textContent", "the hub, Fleet: the hub, live")

	b.js("clock += 60000; timers[0][0](); frame()") // ages grow by themselves
	b.sees("seen().split('\\n')[3]", "a-fine | connected | 3d | managed | 7 | 0 | - | 90s | - | 19d | v1")
}

// A cluster whose API server takes no writes is connected, and in trouble.
func TestAClusterThatTakesNoWritesStandsOut(t *testing.T) {
	full := fine("full")
	full.State, full.Urgency = "no-writes", 4
	b := opened(t, fine("a"), full)
	b.sees("names() + ': ' + $('body').childNodes[0].childNodes[1].className", "full a: bad")
	b.js("press('1takes no writes')")
	b.sees("names()", "full")
}

func TestRowsComeChangeAndGo(t *testing.T) {
	b := opened(t, fine("a"), fine("b"), fine("c"))
	b.js("const before = $('body').childNodes.slice(); moves = 0")
	b.set(away("c"))
	b.hear()
	b.sees("names()", "c a b")
	b.sees("String($('body').childNodes[0] === before[2] && $('body').childNodes[1] === before[0])", "true")
	b.sees("String(moves < 8)", "true") // what has not changed is not drawn again
	b.board.Remove("a")
	b.hear()
	b.sees("names()", "c b")
	b.set(fine("d"))
	b.hear()
	b.sees("names() + counts().slice(0, 9)", "c b dagents 3,")
}

func TestRowsAreSortedAndFiltered(t *testing.T) {
	x, y := fine("x"), away("y")
	x.Applications, x.Version = 9, "v2"
	b := opened(t, x, y, fine("z"))
	b.sees("names()", "y x z")
	b.js("press('Agent')")
	b.sees("names()", "x y z")
	b.js("press('Agent')")
	b.sees("names()", "z y x")
	b.js("press('Apps')") // the most first
	b.sees("names()", "x y z")
	b.js("press('Version')")
	b.sees("names()", "y z x")
	b.js("type('  V1   AWAY ')")
	b.sees("names() + ', ' + $('shown').textContent", "y, 1 of 3")
	b.js("type('no such thing')")
	b.sees("names()", "")
	b.js("type(''); press('2connected')")
	b.sees("names() + ' ' + button('2connected').attributes['aria-pressed']", "z x true")
	b.js("press('2connected')")
	b.sees("names()", "y z x")
}

func TestAnOpenRowSaysWhatToDo(t *testing.T) {
	r := fine("w1")
	r.State, r.Urgency, r.Diverged, r.Principal = "held", 5, 42, "principal-7"
	r.Held = []fleet.Held{{What: "42 deletions of application", ID: "5f2c9b0e7d1a4c33"}, {What: "something"}}
	r.Conditions = []fleet.Condition{{Type: "Held", Status: "True", Since: now - 60, Reason: "ConfirmationRequired", Message: "42 deletions"}}
	b := opened(t, r, fine("w2"))
	b.js("press('w1')")
	b.sees("root.find((e) => e.tag === 'code').map((e) => e.textContent).join('\\n')", `argocd-agentctl pending confirm 5f2c9b0e7d1a4c33
argocd-agentctl pending w1
argocd-agentctl diff w1 --agent-context CONTEXT`)
	text := b.js("$('body').childNodes[1].textContent")
	for _, want := range []string{"42 deletions of application", "To confirm, run: ", "42 items differ", "principal-7", "w1 on the hub", "as the principal is set", "2027-01-15 07:59:00 UTC", "ConfirmationRequired"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q: %s", want, text)
		}
	}
	b.js("const detail = $('body').childNodes[1]")
	b.set(away("w2"))
	b.hear()
	b.sees("String(detail === $('body').childNodes[1]) + names()", "truew1 w2") // somebody may be selecting in it
	r.Held, r.Diverged = nil, 0
	b.set(r)
	b.hear()
	b.sees("root.find((e) => e.className === 'detail').length + ' ' + root.find((e) => e.tag === 'code').length", "1 0")
	b.js("press('w1')")
	b.sees("root.find((e) => e.className === 'detail').length + names()", "0w1 w2")
}

// Whatever an agent says of itself is text.
func TestHostileTextIsText(t *testing.T) {
	evil := `</td><img src=x onerror=alert(1)><script>alert(2)</script>` + "\u202e"
	r := fine("evil")
	r.Version, r.Refused, r.Principal, r.Labels, r.Mode, r.State = evil, evil, evil, evil, evil, evil
	r.Held = []fleet.Held{{What: evil}}
	r.Conditions = []fleet.Condition{{Type: evil, Status: evil, Reason: evil, Message: evil}}
	b := opened(t, r, fleet.Row{Name: "__proto__", State: "away"}, fleet.Row{Name: "constructor", State: "toString"})
	b.js("press('evil')")
	b.sees("root.find((e) => e.tag === 'img').length + ' ' + root.find((e) => e.tag === 'script').length", "0 1") // its own
	if text := b.js("$('body').textContent"); strings.Count(text, evil) < 8 {
		t.Errorf("it is not shown as it is: %s", text)
	}
	b.sees("names()", "__proto__ constructor evil")
}

func TestTroubleIsSeen(t *testing.T) {
	b := opened(t, fine("a"))
	b.sees("String($('trouble').hidden)", "true")
	b.board.SetTrouble("connection refused")
	b.hear()
	b.sees("$('trouble').textContent + $('trouble').hidden", "This picture may be old: connection refusedfalse")
	b.board.SetTrouble("")
	b.hear()
	b.sees("String($('trouble').hidden)", "true")
	b.js("streams[0].readyState = 0; streams[0].onerror()")
	b.sees("$('live').textContent + $('trouble').hidden + timers.length", "cut offfalse1") // the browser tries again by itself
	b.js("streams[0].readyState = 2; streams[0].onerror(); timers[1][0]()")
	b.sees("streams.length + streams[1].url", "2events")
	b.sees("names()", "a") // what was known stays
}

func TestALargeFleetIsDrawnInPortions(t *testing.T) {
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

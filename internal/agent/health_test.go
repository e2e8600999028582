package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func TestDisconnectReason_NamesEachAddress(t *testing.T) {
	a := &agent{}
	is := func(want string) {
		t.Helper()
		if err := a.connected(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	is("not connected yet")
	a.disconnectReason.set("", "no API server")
	is("not connected: no API server")
	a.disconnectReason.set("hub:443", "no route to host")
	is("not connected: no route to host")
	a.disconnectReason.set("standby:443", "Overloaded: this hub is a standby")
	is("not connected: hub:443: no route to host; standby:443: Overloaded: this hub is a standby")
	a.disconnectReason.reset()
	is("not connected yet")
	a.open.Store(true)
	if err := a.connected(); err != nil {
		t.Error(err)
	}
}

// A move to another principal replica is no warning. An agent that does not follow a hub was not refused by it.
func TestReport_NamesTheSideThatEndsASession(t *testing.T) {
	for code, want := range map[engine.Code]string{
		engine.WrongMode:     `level=WARN msg="Hub refused this agent"`,
		engine.HubSuperseded: `level=WARN msg="This agent does not follow the hub"`,
		engine.WrongHub:      `level=WARN msg="This agent does not follow the hub"`,
		engine.Reconnect:     `level=INFO msg="Hub asked this agent to connect again"`,
		engine.ShuttingDown:  `level=INFO msg="Hub asked this agent to connect again"`,
	} {
		var out bytes.Buffer
		a := &agent{ctx: t.Context(), log: slog.New(slog.NewTextHandler(&out, nil))}
		refused := reconcile.Report{Event: engine.Event{Type: engine.Refused, Code: code, Message: "why"}}
		a.report(refused)
		a.report(refused) // is not logged again
		if got := out.String(); !strings.Contains(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: %s", code, got)
		}
	}
}

package browser

import (
	"context"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/cli/fleet"
)

// The server of argocd-agentctl fleet, with its stream and its secret URL.
func TestCLI_ServesPage(t *testing.T) {
	t.Parallel()
	state := agentrows.NewState()
	put := func(r agentrows.Row) {
		t.Helper()
		if err := state.Set(r); err != nil {
			t.Fatal(err)
		}
	}
	put(agentrows.Row{Name: "a", State: "connected", Connected: true, Applications: 7})
	put(agentrows.Row{Name: "b", State: "connected", Connected: true})
	s, err := fleet.Listen(t.Context(), 0, state, agentrows.About{Hub: "the hub", Command: "argocd-agentctl", Expiring: 60}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	b := open(t, s.URL())
	b.sees("2\nagents", "the hub", "live")
	b.names("a b")
	put(agentrows.Row{Name: "b", State: "write-outage", Connected: true, Urgency: 4})
	b.names("b a")
	b.sees("1\nwrite outage", "1\ndegraded")
	state.Remove("a")
	b.names("b")
	state.SetStale("the API server of the hub is unreachable")
	b.sees("This page may be out of date: the API server of the hub is unreachable")
	b.quiet()
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	b.sees("The connection is lost.", "If argocd-agentctl fleet has stopped, start it again and open the new URL.")
	b.names("b")
}

package cli

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/lab"
)

func TestAccess_NamesOnlyAgentsOfGroup(t *testing.T) {
	agent := func(name string, owners ...string) v1alpha1.Agent {
		a := v1alpha1.Agent{Spec: v1alpha1.Spec{Owners: owners}}
		a.Name = name
		return a
	}
	all := []v1alpha1.Agent{agent("w2", "team-a", "team-b"), agent("w1", "team-a"), agent("w3"), agent("w4", "team-b")}
	role, binding, err := accessOf("team-a", "argocd", all)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintln(role.Rules[0].ResourceNames, role.Rules[0].Verbs, role.Namespace, binding.Subjects[0].Name, binding.Subjects[0].Kind); got != "[w1 w2] [get list watch] argocd team-a Group\n" {
		t.Error(got)
	}
	// Without names, a rule would be for all agents.
	if _, _, err := accessOf("none", "argocd", all); err == nil || !strings.Contains(err.Error(), "--owners") {
		t.Errorf("a group without agents: %v", err)
	}
	seen := map[string]string{}
	for _, group := range []string{"team-a", "Team-A", "team/a", "team:a", strings.Repeat("x", 80), strings.Repeat("x", 81), "Ü", "Ö"} {
		name := teamRoleName(group)
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q have the same Role %s", group, other, name)
		}
		if seen[name] = group; strings.ContainsAny(name, "/%: ") || len(name) > 70 {
			t.Errorf("%q has the Role %q", group, name)
		}
	}
}

// Two teams have rights for their own Agents, with the RBAC of a real API server.
func TestTeams_SeeOnlyTheirAgents(t *testing.T) {
	s, l := inLab(t, "cli-teams")
	hub := l.Hub()
	for name, owner := range map[string]string{"w1": "team-a", "w2": "team-a,auditors", "w3": "team-b"} {
		s.run("agent", "create", name, "--mode", "managed", "--owners", owner)
	}
	config := map[string]string{}
	for _, team := range []string{"team-a", "team-b"} {
		rules := s.run("agent", "access", team)
		lab.Await(t, "the rules of "+team, func(ctx context.Context) error { return hub.Apply(ctx, rules) })
		config[team] = kubeconfigAs(t, hub, strings.TrimPrefix(hub.Server, "https://"), "member of "+team, team)
	}
	config["others"] = kubeconfigAs(t, hub, strings.TrimPrefix(hub.Server, "https://"), "member of others", "others")
	as := func(team string, args ...string) string { return s.run(append(args, "--kubeconfig", config[team])...) }

	lab.Await(t, "rights", func(context.Context) error { // the API server needs a moment to apply roles
		if out := as("team-a", "agent", "list", "-o", "name"); strings.Count(out, "\n") != 2 || !strings.Contains(out, "/w1\n") || !strings.Contains(out, "/w2\n") {
			return fmt.Errorf("team-a lists %s", out)
		}
		if out := as("team-b", "agent", "list", "-o", "name"); strings.Count(out, "\n") != 1 || !strings.Contains(out, "/w3\n") {
			return fmt.Errorf("team-b lists %s", out)
		}
		return nil
	})
	if out := as("others", "agent", "list"); !strings.Contains(out, "forbidden") || !strings.Contains(out, "docs/tenants.md") || !strings.Contains(out, "[exit code 1]") {
		t.Errorf("without rights: %s", out)
	}
	if out := as("team-a", "agent", "show", "w1"); !strings.Contains(out, "team-a") || strings.Contains(out, "[exit") {
		t.Errorf("its own agent: %s", out)
	}
	// pending shows what the Agents report, and that it is not everything.
	const partial = "You are not permitted to read the Applications and settings of the hub for w1, w2."
	if out := as("team-a", "pending"); !strings.Contains(out, partial) || !strings.Contains(out, "No pending items found. The state of these agents is unknown") || strings.Contains(out, "[exit") {
		t.Errorf("pending: %s", out)
	}
	const held = `{"status": {"connected": true, "diverged": 2, "pending": {"deliveries": 2, "deletions": 0, "commands": 0, "writes": 0, "rejected": 0}, "holds": [{"scope": "application", "id": "5f2c9b0e7d1a4c33", "count": 2, "reason": "more than half"}]}}`
	for _, name := range []string{"w1", "w3"} {
		patch(t, hub, agentResource, "cli-teams", name, held, "status")
	}
	if out := as("team-a", "pending"); !strings.Contains(out, partial) || strings.Count(out, "5f2c9b0e7d1a4c33") != 1 || strings.Contains(out, "w3") || !strings.Contains(out, "[exit code 3]") {
		t.Errorf("pending with a hold: %s", out)
	}
	if out := as("team-a", "pending", "confirm", "5f2c9b0e7d1a4c33", "--yes"); !strings.Contains(out, "forbidden") || !strings.Contains(out, "[exit code 1]") {
		t.Errorf("confirmation: %s", out)
	}
	for _, name := range []string{"w1", "w3"} {
		patch(t, hub, agentResource, "cli-teams", name, `{"status": {"holds": null, "connected": true, "diverged": 2, "pending": {"deliveries": 2, "deletions": 0, "commands": 0, "writes": 0, "rejected": 0}}}`, "status")
	}
	if out := as("team-a", "pending", "w1"); !strings.Contains(out, "2 undelivered items") || !strings.Contains(out, "[exit code 3]") {
		t.Errorf("pending items: %s", out)
	}
	for _, args := range [][]string{{"pending", "w3"}, {"agent", "show", "w3"}, {"agent", "suspend", "w3"}, {"agent", "suspend", "w1"}, {"agent", "reconfigure", "w1", "--hub-namespace", "w3"}, {"agent", "delete", "w3", "--yes"}, {"agent", "create", "w9"}} {
		if out := as("team-a", args...); !strings.Contains(out, "forbidden") || !strings.Contains(out, "[exit code 1]") {
			t.Errorf("%v: %s", args, out)
		}
	}

	// The page shows the team's agents, and their changes.
	ctx, end := context.WithCancel(t.Context())
	defer end()
	stdout := &syncBuffer{}
	p := &Program{Env: s.env, Stdout: stdout, Stderr: &syncBuffer{}, Now: time.Now}
	ended := make(chan int, 1)
	go func() { ended <- p.Run(ctx, []string{"fleet", "--kubeconfig", config["team-a"]}) }()
	lab.Await(t, "the URL", func(context.Context) error {
		if !strings.HasSuffix(stdout.String(), "/\n") {
			return fmt.Errorf("%q", stdout.String())
		}
		return nil
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSpace(stdout.String())+"v1/agents/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	stream, page := bufio.NewScanner(response.Body), &fleetPage{}
	stream.Buffer(nil, 1<<20)
	page.until(t, stream, "its agents", func() bool { return len(page.all) == 2 && page.all["w1"].Owners == "team-a" })
	for _, name := range []string{"w3", "w2", "w1"} {
		patch(t, hub, agentResource, "cli-teams", name, `{"status": {"connected": true, "applications": 7, "diverged": 2}}`, "status")
	}
	page.until(t, stream, "changes", func() bool { return page.all["w1"].Diverged == 2 && page.all["w2"].Diverged == 2 })
	if _, ok := page.all["w3"]; ok {
		t.Error("the page shows an agent of another team")
	}
	end()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

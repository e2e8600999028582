package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// tour prints the environment and the commands to try.
func (d *demo) tour(ctx context.Context, out io.Writer) error {
	for _, spoke := range spokes {
		if err := d.waitForAppCount(ctx, spoke.Name); err != nil {
			return err
		}
	}
	agents, err := d.output(ctx, "kubectl", "--context", "hub", "--namespace", "argocd", "get", "agents")
	if err != nil {
		return err
	}
	apps, err := d.output(ctx, "argocd", "app", "list", "--output", "wide")
	if err != nil {
		return err
	}
	web, err := d.web(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n$ kubectl -n argocd get agents\n%s\n$ argocd app list    # some of its columns\n%s", agents, narrow(apps))
	fmt.Fprintf(out, `
In another terminal, in this folder, for a shell with kubectl, argocd and argocd-agentctl ready for use:

    go run ./lab/cmd/lab shell -lab %[1]s

Then, all of it on the hub:

    argocd app list                                        # both clusters, as if they were local
    argocd app sync managed/guestbook                      # runs on the cluster, by its own controller
    argocd app resources managed/guestbook
    argocd app logs managed/guestbook                      # through the agent's own connection
    argocd app actions run managed/guestbook restart --kind Deployment
    argocd-agentctl agent list
    argocd-agentctl doctor --agent-context managed         # both sides, and how they fit together
    argocd-agentctl kubeconfig managed --file managed.yaml
    kubectl --kubeconfig managed.yaml get pods             # the cluster, through the hub: as much as its agent permits
    kubectl --kubeconfig managed.yaml exec -it deploy/guestbook -- sh

API servers and Argo CD are real; nodes and pods are simulated, and that last shell is one on this machine.

Break the link, and watch it heal:

    kill -STOP %[2]d                                      # stop the agent: its cluster is unresponsive
    argocd app sync managed/guestbook --async              # waits on the hub
    argocd-agentctl pending || true                        # ... as this shows (exit code 3: something waits)
    kubectl -n argocd get agents                           # within a minute: not connected, and since when
    kill -CONT %[2]d                                      # continue the agent: the sync runs now, once

%[3]s
`, d.name, d.pods["managed/"+agent].Status().PID, web)
	return nil
}

// web returns the address of the API or the web UI of Argo CD, with the credentials.
func (d *demo) web(ctx context.Context) (string, error) {
	web, err := d.hasWebUI(ctx)
	if err != nil {
		return "", err
	}
	text := `The API of Argo CD is at https://%s (%s / %s). This build of Argo CD has no web UI: see
docs/getting-started.md for a demo with it.`
	if web {
		text = `The web UI of Argo CD is at https://%s (%s / %s). Your browser warns about its certificate,
because the demo has its own CA.`
	}
	return fmt.Sprintf(text, d.lab.ArgoCD.Address, d.lab.ArgoCD.Username, d.lab.ArgoCD.Password), nil
}

// hasWebUI reports whether the binary of Argo CD contains the web UI. A binary that is built from the Go module alone
// does not.
func (d *demo) hasWebUI(ctx context.Context) (bool, error) {
	client, err := d.lab.HTTPClient()
	if err != nil {
		return false, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+d.lab.ArgoCD.Address+"/index.html", http.NoBody)
	if err != nil {
		return false, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return false, fmt.Errorf("look for the web UI of Argo CD: %w", err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return false, fmt.Errorf("look for the web UI of Argo CD: %w", err)
	}
	return answer.StatusCode == http.StatusOK && strings.Contains(string(page), "<script"), nil
}

// narrow keeps the main columns of a table.
func narrow(table string) string {
	lines := strings.Split(strings.TrimSpace(table), "\n")
	var out strings.Builder
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) > 6 {
			fmt.Fprintf(&out, "%-24s %-12s %-8s %s\n", fields[0], fields[1], fields[4], fields[5])
		}
	}
	return out.String()
}

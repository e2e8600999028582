package main

import (
	"context"
	"fmt"
	"io"
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

The API that UI and CLI use is at https://%[3]s (%[4]s / %[5]s). The pages of the UI itself are not built here.
`, d.name, d.pods["managed/"+agent].Status().PID, d.lab.ArgoCD.Address, d.lab.ArgoCD.Username, d.lab.ArgoCD.Password)
	return nil
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

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// tour prints what there is, and what to try.
func (d *demo) tour(ctx context.Context, out io.Writer) error {
	agents, err := d.output(ctx, "kubectl", "--context", "hub", "--namespace", "argocd", "get", "agents")
	if err != nil {
		return err
	}
	apps, err := d.output(ctx, "argocd", "app", "list", "--output", "wide")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n$ kubectl get agents\n%s\n$ argocd app list\n%s", agents, narrow(apps))
	fmt.Fprintf(out, `
In another terminal, for a shell with kubectl and argocd ready for use:

    go run ./lab/cmd/lab shell -lab demo
    export PATH=%[1]s:$PATH

Then, all of it on the hub:

    argocd app list                                        # both clusters, as if they were local
    argocd app sync managed/guestbook                      # runs on the cluster, by its own controller
    argocd app resources managed/guestbook
    argocd app logs managed/guestbook                      # through the agent's own connection
    argocd app actions run managed/guestbook restart --kind Deployment
    argocd-agentctl agent list --principal-context hub
    argocd-agentctl kubeconfig managed --principal-context hub > managed.yaml
    kubectl --kubeconfig managed.yaml get pods             # the cluster, through the hub: as much as its agent permits
    kubectl --kubeconfig managed.yaml exec -it deploy/guestbook -- sh

Break the link, and watch it heal:

    kill -STOP %[2]d                                      # the agent hangs: its cluster is away
    argocd app sync managed/guestbook --async              # waits on the hub
    kubectl --context hub -n argocd get agents             # after half a minute: not connected, and since when
    kill -CONT %[2]d                                      # what was asked meanwhile happens now, once

The UI is at https://%[3]s (%[4]s / %[5]s).
`, d.folder, d.pods["managed/"+agent].Status().PID, d.lab.ArgoCD.Address, d.lab.ArgoCD.Username, d.lab.ArgoCD.Password)
	return nil
}

// narrow keeps the columns of a table that people look at first.
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

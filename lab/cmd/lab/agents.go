package main

import (
	"context"
	"fmt"
	"os"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

// runAgents runs the product of this checkout in a lab: a principal, and an agent on each spoke.
func runAgents(ctx context.Context, c *call) error {
	if err := c.parse(0, 0); err != nil {
		return err
	}
	l, err := c.open(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "lab-agents-")
	if err != nil {
		return fmt.Errorf("create a directory for the program: %w", err)
	}
	defer os.RemoveAll(folder)
	fmt.Fprintln(c.errOut, "building argocd-agent")
	file, err := product.Build(ctx, folder)
	if err != nil {
		return err
	}
	p, err := product.New(l, file)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := product.PrepareHub(ctx, l); err != nil {
		return err
	}
	if err := p.StartPrincipal(ctx); err != nil {
		return err
	}
	fmt.Fprintln(c.errOut, "principal is ready")
	if err := p.ServeArgoCD(ctx); err != nil {
		return err
	}
	for _, one := range l.Clusters {
		if one.Role == lab.Hub {
			continue
		}
		if err := product.GrantLiveAccess(ctx, l.Cluster(one.Name), l.Spec.Install); err != nil {
			return err
		}
		a, err := p.StartAgent(ctx, one.Name, string(one.Role))
		if err != nil {
			return err
		}
		if err := a.Connected(ctx); err != nil {
			return err
		}
		fmt.Fprintf(c.errOut, "agent %s (%s) is connected\n", one.Name, one.Role)
	}
	if err := printTour(c, l, p); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// printTour prints the next steps.
func printTour(c *call, l *lab.Lab, p *product.Product) error {
	fmt.Fprintf(c.out, "\nIn another terminal, `go run ./lab/cmd/lab shell`, then:\n\n")
	for _, one := range l.Clusters {
		if one.Role != lab.Managed {
			continue
		}
		kubeconfig, err := p.Kubeconfig(one.Name)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, `  argocd app create web -N %[1]s --project default --dest-name %[1]s --dest-namespace default \
    --repo %[2]s --path .
  argocd app sync %[1]s/web
  argocd app wait %[1]s/web
  kubectl --context %[1]s get deployments
  argocd app resources %[1]s/web
  argocd app logs %[1]s/web
  argocd app actions run %[1]s/web restart --kind Deployment
  kubectl --kubeconfig %[3]s exec -it $(kubectl --context %[1]s get pods -o name) -- sh
  argocd app delete %[1]s/web -y
`, one.Name, l.RepoURL("plain"), kubeconfig)
		break
	}
	fmt.Fprintln(c.out, "\nPrincipal and agents run until you interrupt this.")
	return nil
}

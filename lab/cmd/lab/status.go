package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/argocd-agent/argocd-agent/lab"
)

func runStatus(ctx context.Context, c *call) error {
	if err := c.parse(0, 0); err != nil {
		return err
	}
	l, err := c.open(ctx)
	if err != nil {
		return err
	}
	return showStatus(ctx, l, c.out)
}

func showStatus(ctx context.Context, l *lab.Lab, out io.Writer) error {
	all, err := l.Status(ctx)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tSTATE\tPID\tFOR\tRESTARTS\tMEMORY")
	var memory int64
	for _, one := range all {
		memory += one.Memory
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%d\t%d MiB\n", one.Name, one.State, one.PID,
			time.Since(one.Since).Round(time.Second), one.Restarts, one.Memory>>20)
	}
	fmt.Fprintln(table, "\nCLUSTER\tROLE\tAPI SERVER\tREDIS\tREPO-SERVER")
	for _, one := range l.Clusters {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", one.Name, one.Role, one.Server, one.Redis.Address, one.RepoServer)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d components, %d MiB, ready in %.1f s; state in %s\n",
		len(all), memory>>20, l.ReadyIn.Seconds(), l.Dir())
	if l.ArgoCD.Address != "" {
		fmt.Fprintf(out, "Argo CD: https://%s  %s / %s\n", l.ArgoCD.Address, l.ArgoCD.Username, l.ArgoCD.Password)
	}
	if l.Git.URL != "" {
		fmt.Fprintf(out, "Git:     %s  %s / %s\n", l.Git.URL, l.Git.Username, l.Git.Password)
	}
	return nil
}

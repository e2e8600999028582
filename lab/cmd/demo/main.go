// Command demo starts a hub, a managed and an autonomous cluster with real Argo CD. It installs the principal with
// Kustomize, joins both agents by token, and deploys an Application from the hub and one on the autonomous cluster. Then it
// prints a tour of commands and runs until it is interrupted.
//
// All components are local processes. The containers of Deployments run as processes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/argocd-agent/argocd-agent/lab"
)

func main() {
	exit := flag.Bool("exit", false, "end after success instead of staying up")
	name := flag.String("lab", "demo", "name or directory of the lab")
	pictures := flag.String("screenshots", "", "directory for screenshots of Argo CD's web UI, which need Chromium; implies -exit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *name, *pictures, *exit)
	interrupted := ctx.Err() != nil
	stop()
	if err != nil && (!interrupted || !errors.Is(err, context.Canceled)) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run sets up the demo, prints the tour, waits and cleans up.
func run(ctx context.Context, name, pictures string, exit bool) error {
	d := &demo{began: time.Now()}
	defer d.close()
	say("building what the lab needs (the first time takes about 15 minutes on two cores)")
	if err := lab.Build(ctx, os.Stderr, tools...); err != nil {
		return err
	}
	d.began = time.Now()
	d.say("building argocd-agent and argocd-agentctl")
	if err := d.build(ctx); err != nil {
		return err
	}
	d.say("starting a hub and two workload clusters, with real Argo CD")
	if err := d.up(ctx, name); err != nil {
		return err
	}
	d.say("hub: making a CA, installing the principal with Kustomize")
	if err := d.installPrincipal(ctx); err != nil {
		return err
	}
	for _, spoke := range spokes {
		d.say("%s: joining by token, as an agent in %s mode", spoke.Name, spoke.Role)
		if err := d.join(ctx, spoke); err != nil {
			return fmt.Errorf("join %s: %w", spoke.Name, err)
		}
	}
	d.say("deploying: one Application from the hub, one on its own cluster")
	if err := d.deploy(ctx); err != nil {
		return err
	}
	d.say("both are Synced and Healthy on the hub; this took %.0f s", time.Since(d.began).Seconds())
	if err := d.tour(ctx, os.Stdout); err != nil {
		return err
	}
	if pictures != "" {
		return d.screenshots(ctx, pictures)
	}
	if exit {
		return nil
	}
	fmt.Println("\nEverything runs until you interrupt this (Ctrl-C), and is removed then.")
	<-ctx.Done()
	say("\nending and removing everything")
	return nil
}

func (d *demo) say(format string, args ...any) {
	say("%s", fmt.Sprintf("%5.1f s  %s", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...)))
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// close stops everything that was started.
func (d *demo) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, pod := range d.pods {
		_ = pod.Stop(ctx)
	}
	if d.lab != nil {
		_ = d.lab.Down(ctx) // it may have stopped already: it receives the interrupt too, and it ends with this process
	}
	if d.folder != "" {
		_ = os.RemoveAll(d.folder)
	}
}

// checkout returns the root of the repository.
func checkout() (string, error) {
	root, err := os.Getwd()
	if err == nil {
		_, err = os.Stat(filepath.Join(root, "install", "helm", "argocd-agent", "Chart.yaml"))
	}
	if err != nil {
		return "", fmt.Errorf("run this in the root of the repository: %w", err)
	}
	return root, nil
}

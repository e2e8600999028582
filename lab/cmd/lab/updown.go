package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/internal/debian"
)

func runBuild(ctx context.Context, c *call) error {
	if err := c.parse(0, 0); err != nil {
		return err
	}
	if err := lab.Build(ctx, c.out); err != nil {
		return err
	}
	if err := debian.Ensure(ctx, debian.This(c.out), debian.Browser); err != nil {
		return err
	}
	fmt.Fprintln(c.out, "all tools are built")
	return nil
}

func runUp(ctx context.Context, c *call) error {
	options := lab.Options{Progress: c.out}
	var spokes []lab.Spoke
	c.flags.Func("spoke", "`NAME=MODE`, a spoke and its mode, managed (default) or autonomous; repeatable", func(text string) error {
		name, role, found := strings.Cut(text, "=")
		if !found {
			role = string(lab.Managed)
		}
		spokes = append(spokes, lab.Spoke{Name: name, Role: lab.Role(role)})
		return nil
	})
	none := c.flags.Bool("no-spokes", false, "only a hub")
	c.flags.BoolVar(&options.Bare, "bare", false, "only control planes with Argo CD's CRDs")
	c.flags.IntVar(&options.ArgoCDPort, "argocd-port", 0, "port of argocd-server (default: any)")
	c.flags.BoolVar(&options.Fsync, "fsync", false, "let etcd sync to disk, for benchmarks")
	if err := c.parse(0, 0); err != nil {
		return err
	}
	if *none {
		spokes = []lab.Spoke{}
	}
	options.Spokes = spokes
	var err error
	if options.Dir, err = c.folder(); err != nil {
		return err
	}
	if options.Binary, err = os.Executable(); err != nil {
		return fmt.Errorf("find this binary: %w", err)
	}
	l, err := lab.Up(ctx, options)
	if err != nil {
		return err
	}
	return showStatus(ctx, l, c.out)
}

func runDown(ctx context.Context, c *call) error {
	if err := c.parse(0, 0); err != nil {
		return err
	}
	folder, err := c.folder()
	if err != nil {
		return err
	}
	if err := lab.Down(ctx, folder); err != nil {
		return err
	}
	fmt.Fprintln(c.out, "the lab is down")
	return nil
}

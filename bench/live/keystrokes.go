package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// keyStrokes measures the echo latency of an exec session under load through the same agent.
func (b *bench) keyStrokes(ctx context.Context) error {
	if err := b.makeList(ctx); err != nil {
		return err
	}
	direct, err := b.openShell(ctx, b.direct)
	if err != nil {
		return err
	}
	defer direct.close()
	hub, err := b.openShell(ctx, b.hub)
	if err != nil {
		return err
	}
	defer hub.close()
	quietDirect, quiet, err := interleave(500, direct.echo, hub.echo)
	if err != nil {
		return err
	}
	b.Add("key stroke without load, direct, p99", quietDirect.at(0.99), "ms")
	b.Add("key stroke without load, through the hub, p99", quiet.at(0.99), "ms")

	loaded, stop := context.WithCancel(ctx)
	defer stop()
	var others sync.WaitGroup
	defer others.Wait()
	defer stop()
	var lists, bytes atomic.Int64
	failed := make(chan error, 1)
	for range 100 {
		others.Go(func() { _, _ = b.hub.get(loaded, b.logPath("?follow=true&tailLines=1")) })
	}
	others.Go(func() { b.writeLog(loaded) })
	others.Go(func() {
		for loaded.Err() == nil {
			size, err := b.hub.get(loaded, "/api/v1/namespaces/"+namespace+"/configmaps")
			if err != nil && loaded.Err() == nil {
				select {
				case failed <- err:
				default:
				}
				return
			}
			lists.Add(1)
			bytes.Store(max(size, bytes.Load()))
		}
	})
	if err := until(ctx, "the first list", func() error {
		if lists.Load() == 0 {
			return fmt.Errorf("it has not come yet")
		}
		return nil
	}); err != nil {
		return err
	}
	before := lists.Load()
	busyDirect, busy, err := interleave(1000, direct.echo, hub.echo)
	if err != nil {
		return err
	}
	select {
	case err := <-failed:
		return fmt.Errorf("list: %w", err)
	default:
	}
	b.Add("size of the list", float64(bytes.Load())/1e6, "MB")
	b.Add("lists during the measurement", float64(lists.Load()-before), "")
	b.Add("key stroke under load, direct, p99", busyDirect.at(0.99), "ms")
	b.Add("key stroke under load, through the hub, p50", busy.at(0.5), "ms")
	b.AtMost(20, "key stroke under load, through the hub, p99", busy.at(0.99), "ms")
	b.Add("key stroke under load, added latency, p99", busy.at(0.99)-busyDirect.at(0.99), "ms")
	return nil
}

// makeList creates objects with a total size of 50 MB.
func (b *bench) makeList(ctx context.Context) error {
	for i := range 55 {
		manifest := fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: large-%d, namespace: %s}, data: {a: %q}}", i, namespace, strings.Repeat("x", 940<<10))
		if err := b.spoke.Apply(ctx, manifest); err != nil {
			return err
		}
	}
	return nil
}

// writeLog writes the log that the followers read.
func (b *bench) writeLog(ctx context.Context) {
	beat := time.NewTicker(100 * time.Millisecond)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			_ = b.spoke.LogInPods("something happens here ten times a second")
		}
	}
}

// shell is kubectl exec with a program that echoes its input.
type shell struct {
	in   io.WriteCloser
	out  *bufio.Reader
	stop func()
}

func (b *bench) openShell(ctx context.Context, w *accessPath) (*shell, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := b.lab.Command(ctx, "kubectl", "--kubeconfig", w.kubeconfig, "-n", namespace, "exec", "-i", b.pod, "--", "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("kubectl exec %s: %w", w.name, err)
	}
	s := &shell{in: in, out: bufio.NewReader(out), stop: func() { end(cmd, cancel) }}
	return s, s.echo()
}

func end(cmd *exec.Cmd, cancel func()) {
	cancel()
	_ = cmd.Wait()
}

// echo sends a key and waits for its echo.
func (s *shell) echo() error {
	if _, err := io.WriteString(s.in, "k\n"); err != nil {
		return fmt.Errorf("type a key: %w", err)
	}
	if line, err := s.out.ReadString('\n'); err != nil || line != "k\n" {
		return fmt.Errorf("a key came back as %q: %w", line, err)
	}
	return nil
}

func (s *shell) close() { s.stop() }

package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent/argocd-agent/lab/internal/cluster"
	"github.com/argocd-agent/argocd-agent/lab/internal/control"
	"github.com/argocd-agent/argocd-agent/lab/internal/model"
)

// start starts everything. Tasks for the lifetime of the lab are added to background and end with ctx.
func (s *supervisor) start(ctx context.Context, background *sync.WaitGroup) error {
	starting, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the lab was not ready within %s", startTimeout))
	defer cancel()
	if err := s.linkPrograms(); err != nil {
		return err
	}
	state := model.State{Spec: s.spec, PID: os.Getpid(), Started: s.begun}
	for _, spec := range s.spec.Clusters {
		one, err := cluster.New(s.spec, spec, s.group, s.ports)
		if err != nil {
			return err
		}
		s.clusters = append(s.clusters, one)
	}
	if err := s.startAll(starting, &state); err != nil {
		return err
	}
	for _, one := range s.clusters {
		state.Clusters = append(state.Clusters, one.State)
	}
	if err := cluster.MergeKubeconfigs(model.Kubeconfigs(s.spec.Folder), s.clusters); err != nil {
		return err
	}
	listener, err := control.Listen(s.spec.Folder)
	if err != nil {
		return err
	}
	background.Go(func() { _ = control.Serve(listener, s) })
	background.Go(func() { <-ctx.Done(); _ = listener.Close() })
	for _, one := range s.clusters {
		if !one.Spec.Bare {
			background.Go(func() { one.KeepMounts(ctx) })
			background.Go(func() { tickPodLog(ctx, one.State.PodLog) })
		}
	}
	state.ReadyIn = time.Since(s.begun)
	return model.Write(model.StateFile(s.spec.Folder), state)
}

// startAll starts the Git server and all clusters concurrently, and connects them.
func (s *supervisor) startAll(ctx context.Context, state *model.State) error {
	all, ctx := errgroup.WithContext(ctx)
	git := make(chan struct{})
	if !s.spec.Clusters[0].Bare {
		all.Go(func() (err error) {
			defer close(git)
			if state.Git, err = s.startGit(ctx); err != nil {
				return fmt.Errorf("start the Git server: %w", err)
			}
			return nil
		})
	}
	for _, one := range s.clusters {
		all.Go(func() error {
			if err := s.startCluster(ctx, one, state); err != nil {
				return fmt.Errorf("start the cluster %s: %w", one.Spec.Name, err)
			}
			if one.Spec.Bare {
				return nil
			}
			<-git
			return one.TrustGit(ctx, state.Git)
		})
	}
	return all.Wait()
}

// startCluster starts a cluster. The hub also gets argocd-server.
func (s *supervisor) startCluster(ctx context.Context, one *cluster.Cluster, state *model.State) (err error) {
	begun := time.Now()
	if err := one.Start(ctx); err != nil {
		return err
	}
	if one.Spec.Role == model.Hub && !one.Spec.Bare {
		if state.ArgoCD, err = one.StartArgoCDServer(ctx, s.spec.ArgoCDPort); err != nil {
			return fmt.Errorf("start argocd-server: %w", err)
		}
	}
	s.progress.Progress("%s (%s) is ready after %.1f s", one.Spec.Name, one.Spec.Role, time.Since(begun).Seconds())
	return nil
}

// linkPrograms creates a directory for PATH with links to all tools.
func (s *supervisor) linkPrograms() error {
	names := map[string]string{}
	for tool := range s.spec.Tools {
		names[tool] = s.spec.Tools.Binary(tool)
	}
	for _, alias := range []string{"argocd-git-ask-pass", "argocd-k8s-auth"} {
		names[alias] = s.spec.Tools.Binary("argocd")
	}
	scripts, err := filepath.Glob(filepath.Join(s.spec.Tools["argocd"], "hack", "*.sh"))
	if err != nil {
		return err
	}
	for _, script := range scripts {
		names[filepath.Base(script)] = script
	}
	for name, program := range names {
		link := filepath.Join(model.BinFolder(s.spec.Folder), name)
		if err := os.Symlink(program, link); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}

// tickPodLog adds lines to the log of simulated pods regularly, so that a followed log changes.
func tickPodLog(ctx context.Context, file string) {
	ticker := time.NewTicker(5 * time.Second)
	defer ticker.Stop()
	for count := 1; ; count++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = cluster.AppendPodLog(file, fmt.Sprintf("tick %d", count))
		}
	}
}

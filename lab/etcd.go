package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/argocd-agent/argocd-agent/lab/internal/cluster"
)

// Snapshot saves the content of a cluster's etcd to a file, while it runs.
func (c *Cluster) Snapshot(ctx context.Context, file string) error {
	return c.etcdTool(ctx, "etcdctl", "--endpoints="+c.EtcdURL, "snapshot", "save", file)
}

// Restore restores a cluster's etcd from a snapshot, as an administrator does: it stops API server and etcd, replaces
// the data, and starts both. All other components keep running and observe an older store. It returns when the API
// server answers.
func (c *Cluster) Restore(ctx context.Context, file string) error {
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("restore %s: %w", c.Name, err)
	}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if err := c.lab.Kill(ctx, c.Component(name)); err != nil {
			return fmt.Errorf("restore %s: %w", c.Name, err)
		}
	}
	data := cluster.EtcdDir(c.lab.Dir(), c.Name)
	if err := os.RemoveAll(data); err != nil {
		return fmt.Errorf("restore %s: %w", c.Name, err)
	}
	if err := c.etcdTool(ctx, "etcdutl", "snapshot", "restore", file, "--data-dir="+data, "--name="+c.Name,
		"--initial-cluster="+c.Name+"="+c.EtcdPeer, "--initial-advertise-peer-urls="+c.EtcdPeer); err != nil {
		return err
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := c.lab.Restart(ctx, c.Component(name)); err != nil {
			return fmt.Errorf("restore %s: %w", c.Name, err)
		}
	}
	return nil
}

func (c *Cluster) etcdTool(ctx context.Context, tool string, args ...string) error {
	command := exec.CommandContext(ctx, c.lab.Spec.Tools.Binary(tool), args...)
	command.Dir = filepath.Dir(c.Kubeconfig)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s for %s: %w: %s", tool, c.Name, err, out)
	}
	return nil
}

// Package cluster starts one cluster of the lab: etcd, the Kubernetes control plane, simulated nodes, and the
// components of Argo CD for its role, all as processes on the loopback interface.
package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/lab/internal/model"
	"github.com/argocd-agent/argocd-agent/lab/internal/pki"
	"github.com/argocd-agent/argocd-agent/lab/internal/ports"
	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
)

// Cluster is a cluster during its start.
type Cluster struct {
	Spec  model.ClusterSpec
	State model.ClusterState

	lab       model.Spec
	group     *proc.Group
	ports     *ports.Block
	folder    string
	authority *pki.Authority
	admin     *rest.Config
}

// New prepares a cluster without starting it.
func New(lab model.Spec, spec model.ClusterSpec, group *proc.Group, block *ports.Block) (*Cluster, error) {
	c := &Cluster{Spec: spec, lab: lab, group: group, ports: block, folder: filepath.Join(lab.Folder, "clusters", spec.Name)}
	if err := os.MkdirAll(c.folder, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of cluster %s: %w", spec.Name, err)
	}
	authority, err := pki.NewAuthority(c.path("pki"), spec.Name)
	if err != nil {
		return nil, err
	}
	c.authority = authority
	c.State = model.ClusterState{
		Name: spec.Name, Role: spec.Role,
		CAFile: authority.CertFile(), CAKeyFile: authority.KeyFile(),
		Kubeconfig: c.path("admin.kubeconfig"), PodLog: c.path("pod.log"), AuditLog: c.path("audit.log"),
	}
	return c, nil
}

// Start starts the components in the order of their dependencies. It returns when all of them are ready.
func (c *Cluster) Start(ctx context.Context) error {
	if err := c.startControlPlane(ctx); err != nil {
		return err
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return c.startControllers(ctx) })
	parts.Go(func() error { return c.startNodes(ctx) })
	parts.Go(func() error {
		if err := c.install(ctx); err != nil {
			return err
		}
		if c.Spec.Bare {
			return nil
		}
		return c.startArgoCD(ctx)
	})
	return parts.Wait()
}

// Admin returns a client configuration with all permissions.
func (c *Cluster) Admin() *rest.Config { return rest.CopyConfig(c.admin) }

func (c *Cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.folder}, parts...)...)
}

// start starts a component of the cluster. extraEnv is added to a minimal environment.
func (c *Cluster) start(name, tool string, extraEnv []string, args ...string) (*proc.Component, error) {
	return c.startProgram(name, c.lab.Tools.Binary(tool), tool, extraEnv, args...)
}

func (c *Cluster) startProgram(name, program, argv0 string, extraEnv []string, args ...string) (*proc.Component, error) {
	home := c.path(name)
	if err := os.MkdirAll(filepath.Join(home, "tmp"), 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of %s: %w", name, err)
	}
	env := append([]string{
		"PATH=" + model.BinFolder(c.lab.Folder) + ":" + os.Getenv("PATH"),
		"HOME=" + home,
		"TMPDIR=" + filepath.Join(home, "tmp"),
		proc.LabVariable(c.lab.Folder),
	}, extraEnv...)
	return c.group.Start(proc.Spec{
		Name: c.Spec.Name + "/" + name, Program: program, Args: append([]string{argv0}, args...),
		Env: env, Dir: home, Log: c.log(name),
	})
}

func (c *Cluster) log(name string) string {
	return filepath.Join(model.LogFolder(c.lab.Folder), c.Spec.Name+"-"+name+".log")
}

// newPorts reserves n ports.
func (c *Cluster) newPorts(n int) ([]int, error) {
	taken := make([]int, n)
	for i := range taken {
		port, err := c.ports.Next()
		if err != nil {
			return nil, err
		}
		taken[i] = port
	}
	return taken, nil
}

// newPassword returns a random password.
func newPassword() string { return rand.Text() }

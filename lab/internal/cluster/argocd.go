package cluster

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent/argocd-agent/lab/internal/model"
	"github.com/argocd-agent/argocd-agent/lab/internal/ports"
)

// startArgoCD starts the components of Argo CD for the role of the cluster.
func (c *Cluster) startArgoCD(ctx context.Context) error {
	if err := c.startRedis(ctx); err != nil {
		return err
	}
	repoPorts, err := c.newPorts(2)
	if err != nil {
		return err
	}
	c.State.RepoServer = ports.Address(repoPorts[0])
	if err := c.makeMounts(); err != nil {
		return err
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return c.startRepoServer(ctx, repoPorts[0], repoPorts[1]) })
	switch c.Spec.Role {
	case model.Hub: // argocd-server is started separately, because its port can be set
		parts.Go(func() error { return c.startApplicationSetController(ctx) })
	case model.Autonomous:
		parts.Go(func() error { return c.startApplicationController(ctx) })
		parts.Go(func() error { return c.startApplicationSetController(ctx) })
	default:
		parts.Go(func() error { return c.startApplicationController(ctx) })
	}
	return parts.Wait()
}

// argocdEnv returns the environment for Argo CD outside a pod. The in-cluster destination is read from KUBECONFIG, and
// directories of the lab replace mounts.
func (c *Cluster) argocdEnv() []string {
	return []string{
		"ARGOCD_FAKE_IN_CLUSTER=true",
		"KUBECONFIG=" + c.State.Kubeconfig,
		"REDIS_PASSWORD=" + c.State.Redis.Password,
		"ARGOCD_TLS_DATA_PATH=" + c.mount("argocd-tls-certs-cm"),
		"ARGOCD_SSH_DATA_PATH=" + c.mount("argocd-ssh-known-hosts-cm"),
		"ARGOCD_GPG_DATA_PATH=" + c.mount("argocd-gpg-keys-cm"),
		"ARGOCD_GNUPGHOME=" + c.path("gnupg"),
		"ARGOCD_APP_CONF_PATH=" + c.path("argocd-conf"),
		"ARGOCD_PLUGINSOCKFILEPATH=" + c.path("argocd-conf", "plugins"),
		"ARGOCD_ASK_PASS_SOCK=" + c.path("ask-pass.sock"), // otherwise all repo-servers of the machine share one
	}
}

func (c *Cluster) argocdArgs(args ...string) []string {
	return append([]string{
		"--kubeconfig=" + c.State.Kubeconfig, "--namespace=" + model.ArgoCDNamespace,
		"--logformat=json", "--redis=" + c.State.Redis.Address, "--repo-server=" + c.State.RepoServer,
	}, args...)
}

func (c *Cluster) startRepoServer(ctx context.Context, port, metrics int) error {
	for _, folder := range []string{c.path("gnupg"), c.path("argocd-conf", "plugins")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("create a directory of the repo-server: %w", err)
		}
	}
	server, err := c.startProgram("repo-server", c.lab.Tools.Binary("argocd"), "argocd-repo-server", c.argocdEnv(),
		"--address=127.0.0.1", "--port="+strconv.Itoa(port),
		"--metrics-address=127.0.0.1", "--metrics-port="+strconv.Itoa(metrics),
		"--logformat=json", "--redis="+c.State.Redis.Address,
	)
	if err != nil {
		return err
	}
	return server.WaitReady(ctx, httpProbe("http://"+ports.Address(metrics)+"/healthz?full=true", ""))
}

func (c *Cluster) startApplicationController(ctx context.Context) error {
	taken, err := c.newPorts(2)
	if err != nil {
		return err
	}
	c.State.CommitServer = ports.Address(taken[1])
	controller, err := c.startProgram("application-controller", c.lab.Tools.Binary("argocd"),
		"argocd-application-controller", append(c.argocdEnv(), "ARGOCD_HYDRATOR_ENABLED=true", "ARGOCD_APPLICATION_CONTROLLER_COMMIT_SERVER="+c.State.CommitServer),
		c.argocdArgs("--metrics-port="+strconv.Itoa(taken[0]), "--application-namespaces=*")...)
	if err != nil {
		return err
	}
	return controller.WaitReady(ctx, httpProbe("http://"+ports.Address(taken[0])+"/healthz", ""))
}

func (c *Cluster) startApplicationSetController(ctx context.Context) error {
	taken, err := c.newPorts(3)
	if err != nil {
		return err
	}
	controller, err := c.startProgram("applicationset-controller", c.lab.Tools.Binary("argocd"),
		"argocd-applicationset-controller", c.argocdEnv(),
		"--kubeconfig="+c.State.Kubeconfig, "--namespace="+model.ArgoCDNamespace, "--logformat=json",
		"--argocd-repo-server="+c.State.RepoServer,
		"--metrics-addr="+ports.Address(taken[0]), "--probe-addr="+ports.Address(taken[1]), "--webhook-addr="+ports.Address(taken[2]),
		"--enable-progressive-syncs",
	)
	if err != nil {
		return err
	}
	return controller.WaitReady(ctx, httpProbe("http://"+ports.Address(taken[0])+"/metrics", "")) // it has no health check
}

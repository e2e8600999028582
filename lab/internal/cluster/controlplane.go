package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent/argocd-agent/lab/internal/pki"
	"github.com/argocd-agent/argocd-agent/lab/internal/ports"
)

// EtcdDir returns the data directory of a cluster's etcd.
func EtcdDir(lab, name string) string { return filepath.Join(lab, "clusters", name, "etcd", "data") }

// startControlPlane starts etcd and the API server, and writes the kubeconfig of the administrator.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	taken, err := c.newPorts(3)
	if err != nil {
		return err
	}
	client, peer := "http://"+ports.Address(taken[0]), "http://"+ports.Address(taken[1])
	c.State.EtcdURL, c.State.EtcdPeer = client, peer
	if err := c.startEtcd(ctx, client, peer); err != nil {
		return err
	}
	return c.startAPIServer(ctx, taken[2])
}

func (c *Cluster) startEtcd(ctx context.Context, client, peer string) error {
	args := []string{
		"--name=" + c.Spec.Name, "--data-dir=" + EtcdDir(c.lab.Folder, c.Spec.Name),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + c.Spec.Name + "=" + peer,
		"--auto-compaction-mode=revision", "--auto-compaction-retention=20000",
		"--quota-backend-bytes=" + strconv.Itoa(8<<30), "--log-level=warn",
		"--watch-progress-notify-interval=5s", // as with kubeadm. Bookmarks of a resource without changes depend on it
	}
	if !c.lab.Fsync {
		args = append(args, "--unsafe-no-fsync")
	}
	etcd, err := c.start("etcd", "etcd", nil, args...)
	if err != nil {
		return err
	}
	return etcd.WaitReady(ctx, httpProbe(client+"/readyz", ""))
}

func (c *Cluster) startAPIServer(ctx context.Context, port int) error {
	serving, err := c.authority.Server("kube-apiserver", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	if err != nil {
		return err
	}
	kubelet, err := c.authority.Client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	tokenKey := c.path("pki", "service-accounts.key")
	if _, err := pki.NewKey(tokenKey); err != nil {
		return err
	}
	c.State.Server = "https://" + ports.Address(port)
	if c.admin, err = c.writeClientKubeconfig(c.State.Kubeconfig, "lab-admin", "system:masters"); err != nil {
		return err
	}
	audit, err := c.auditArgs()
	if err != nil {
		return err
	}
	server, err := c.start("kube-apiserver", "kube-apiserver", nil, append(audit,
		"--etcd-servers="+c.State.EtcdURL,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+strconv.Itoa(port),
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file="+serving.Cert, "--tls-private-key-file="+serving.Key,
		"--client-ca-file="+c.authority.CertFile(), "--authorization-mode=RBAC", "--allow-privileged=true",
		"--kubelet-client-certificate="+kubelet.Cert, "--kubelet-client-key="+kubelet.Key,
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+tokenKey+".pub",
		"--service-account-signing-key-file="+tokenKey,
		"--profiling=false",
	)...)
	if err != nil {
		return err
	}
	return server.WaitReady(ctx, httpProbe(c.State.Server+"/readyz", c.authority.CertFile()))
}

// auditArgs returns the flags with which the API server writes an audit log with the metadata of completed requests.
func (c *Cluster) auditArgs() ([]string, error) {
	if !c.lab.Audited {
		return nil, nil
	}
	policy := c.path("audit-policy.yaml")
	const metadata = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived","ResponseStarted"],"rules":[{"level":"Metadata"}]}`
	if err := os.WriteFile(policy, []byte(metadata), 0o600); err != nil {
		return nil, err
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + c.State.AuditLog}, nil
}

// startControllers starts the controller manager and, if there are nodes, the scheduler.
func (c *Cluster) startControllers(ctx context.Context) error {
	names := []string{"kube-controller-manager"}
	if c.Spec.Nodes > 0 {
		names = append(names, "kube-scheduler")
	}
	own := map[string][]string{
		"kube-controller-manager": {
			"--service-account-private-key-file=" + c.path("pki", "service-accounts.key"),
			"--root-ca-file=" + c.authority.CertFile(),
		},
	}
	if c.Spec.Bare { // a benchmark creates 1,000 namespaces, for which the default of 20/s takes minutes
		own["kube-controller-manager"] = append(own["kube-controller-manager"], "--kube-api-qps=1000", "--kube-api-burst=1000")
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		all.Go(func() error { return c.startController(ctx, name, own[name]...) })
	}
	return all.Wait()
}

func (c *Cluster) startController(ctx context.Context, name string, args ...string) error {
	taken, err := c.newPorts(1)
	if err != nil {
		return err
	}
	kubeconfig := c.path(name + ".kubeconfig")
	// With all permissions. Otherwise every controller would log in with its own ServiceAccount, which is slower.
	if _, err := c.writeClientKubeconfig(kubeconfig, "system:"+name, "system:masters"); err != nil {
		return err
	}
	serving, err := c.authority.Server(name)
	if err != nil {
		return err
	}
	controller, err := c.start(name, name, nil, append(args,
		"--kubeconfig="+kubeconfig, "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(taken[0]),
		"--tls-cert-file="+serving.Cert, "--tls-private-key-file="+serving.Key,
	)...)
	if err != nil {
		return err
	}
	address := fmt.Sprintf("https://%s/healthz", ports.Address(taken[0]))
	return controller.WaitReady(ctx, httpProbe(address, filepath.Join(c.folder, "pki", "ca.crt")))
}

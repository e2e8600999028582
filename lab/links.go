package lab

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
	"github.com/argocd-agent/argocd-agent/lab/internal/pki"
)

// Link puts a link that can be cut, delayed, throttled and reset in front of a TCP service. The client must use
// link.Addr(), for example:
//
//	l.Restart(ctx, "hub/argocd-server", lab.Flag("--redis", link.Addr()))
func (l *Lab) Link(target string) (*faultproxy.Link, error) { return faultproxy.New(target) }

// LinkURL puts a link in front of the server of a URL with a port, and changes the URL to that of the link.
func LinkURL(address *string) (*faultproxy.Link, error) {
	u, err := url.Parse(*address)
	if err != nil {
		return nil, fmt.Errorf("link to %s: %w", *address, err)
	}
	link, err := faultproxy.New(u.Host)
	if err != nil {
		return nil, err
	}
	u.Host = link.Addr()
	*address = u.String()
	return link, nil
}

// LinkEtcd restarts the API server with a link in front of etcd. Snapshot, Restore, FillDisk and FreeDisk do not use the link.
func (c *Cluster) LinkEtcd(ctx context.Context) (*faultproxy.Link, error) {
	address := c.EtcdURL
	link, err := LinkURL(&address)
	if err != nil {
		return nil, err
	}
	if err := c.lab.Restart(ctx, c.Component("kube-apiserver"), Flag("--etcd-servers", address)); err != nil {
		return nil, errors.Join(err, link.Close())
	}
	return link, nil
}

// FaultyAPI is a proxy in front of a cluster's API server that can answer 409, 410, 429 or 500.
type FaultyAPI struct {
	*faultproxy.API
	Kubeconfig string // identity of principal or agent, through this proxy
	cluster    *Cluster
}

// FaultyAPI starts a proxy in front of the API server, with a certificate of the cluster's CA. Its kubeconfig has the
// permissions of the install manifests.
func (c *Cluster) FaultyAPI() (*FaultyAPI, error) {
	folder, err := os.MkdirTemp(filepath.Dir(c.Kubeconfig), "faulty-api-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for the faulty API server: %w", err)
	}
	authority, err := pki.LoadAuthority(c.CAFile, c.CAKeyFile, folder)
	if err != nil {
		return nil, err
	}
	pair, err := authority.Server("faulty-api")
	if err != nil {
		return nil, err
	}
	certificate, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("load the certificate of the faulty API server: %w", err)
	}
	ca, err := c.CA()
	if err != nil {
		return nil, err
	}
	proxy, err := faultproxy.NewAPI(faultproxy.APIOptions{Target: c.Server, TargetCA: ca, Certificate: &certificate})
	if err != nil {
		return nil, err
	}
	faulty := &FaultyAPI{API: proxy, Kubeconfig: filepath.Join(folder, "kubeconfig"), cluster: c}
	if err := faulty.writeKubeconfig(); err != nil {
		_ = proxy.Close()
		return nil, err
	}
	return faulty, nil
}

func (f *FaultyAPI) writeKubeconfig() error {
	config, err := clientcmd.LoadFromFile(f.cluster.RunAs.File)
	if err != nil {
		return fmt.Errorf("read the kubeconfig of %s: %w", f.cluster.RunAs.User, err)
	}
	config.Clusters[f.cluster.Name] = &api.Cluster{Server: f.URL(), CertificateAuthority: f.cluster.CAFile}
	return clientcmd.WriteToFile(*config, f.Kubeconfig)
}

// Config returns a client configuration with the identity of principal or agent through this proxy.
func (f *FaultyAPI) Config() *rest.Config { return f.cluster.config(f.Kubeconfig) }

package cluster

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// writeClientKubeconfig writes a kubeconfig with a client certificate of the cluster's CA.
func (c *Cluster) writeClientKubeconfig(file, user string, groups ...string) (*rest.Config, error) {
	pair, err := c.authority.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	return c.writeKubeconfig(file, user, "", &api.AuthInfo{ClientCertificate: pair.Cert, ClientKey: pair.Key})
}

// writeTokenKubeconfig writes a kubeconfig with a bearer token, which works through a proxy.
func (c *Cluster) writeTokenKubeconfig(file, user, namespace, token string) error {
	_, err := c.writeKubeconfig(file, user, namespace, &api.AuthInfo{Token: token})
	return err
}

func (c *Cluster) writeKubeconfig(file, user, namespace string, auth *api.AuthInfo) (*rest.Config, error) {
	config := api.NewConfig()
	config.Clusters[c.Spec.Name] = &api.Cluster{Server: c.State.Server, CertificateAuthority: c.authority.CertFile()}
	config.AuthInfos[user] = auth
	config.Contexts[c.Spec.Name] = &api.Context{Cluster: c.Spec.Name, AuthInfo: user, Namespace: namespace}
	config.CurrentContext = c.Spec.Name
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return nil, fmt.Errorf("write the kubeconfig %s: %w", file, err)
	}
	client, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load the kubeconfig %s: %w", file, err)
	}
	client.QPS, client.Burst = -1, -1 // no client-side throttling
	client.WarningHandler = rest.NoWarnings{}
	return client, nil
}

// MergeKubeconfigs writes one kubeconfig with a context for every cluster, named like it. The first is the current one.
func MergeKubeconfigs(file string, clusters []*Cluster) error {
	merged := api.NewConfig()
	for _, c := range clusters {
		one, err := clientcmd.LoadFromFile(c.State.Kubeconfig)
		if err != nil {
			return fmt.Errorf("read the kubeconfig of %s: %w", c.Spec.Name, err)
		}
		merged.Clusters[c.Spec.Name] = one.Clusters[c.Spec.Name]
		merged.AuthInfos[c.Spec.Name] = one.AuthInfos["lab-admin"]
		merged.Contexts[c.Spec.Name] = &api.Context{Cluster: c.Spec.Name, AuthInfo: c.Spec.Name}
	}
	merged.CurrentContext = clusters[0].Spec.Name
	return clientcmd.WriteToFile(*merged, file)
}

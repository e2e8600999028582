package product

import (
	"fmt"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// Links are in front of what principals and agents use. Other clients, such as users, are not affected if one is cut.
type Links struct {
	API   map[string]*faultproxy.Link // API server, by the name of the program
	Redis map[string]*faultproxy.Link // Redis, by the name of its cluster
}

// NewWithLinks is New for programs that reach API servers and Redis through Links.
func NewWithLinks(l *lab.Lab, file string) (*Product, error) {
	p, err := New(l, file)
	if err == nil {
		p.Links = &Links{API: map[string]*faultproxy.Link{}, Redis: map[string]*faultproxy.Link{}}
	}
	return p, err
}

// kubeconfig returns the kubeconfig of a program: the given one, or a copy that leads through its link.
func (p *Product) kubeconfig(program, file string) (string, error) {
	if p.Links == nil {
		return file, nil
	}
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig of %s: %w", program, err)
	}
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	link, err := lab.LinkURL(&cluster.Server)
	if err != nil {
		return "", err
	}
	p.Links.API[program] = link
	linked := filepath.Join(p.folder, program+".kubeconfig")
	return linked, clientcmd.WriteToFile(*config, linked)
}

// redis returns the address of a cluster's Redis, or of the link in front of it.
func (p *Product) redis(c *lab.Cluster) (string, error) {
	if p.Links == nil {
		return c.Redis.Address, nil
	}
	link, err := p.lab.Link(c.Redis.Address)
	if err != nil {
		return "", err
	}
	p.Links.Redis[c.Name] = link
	return link.Addr(), nil
}

func (l *Links) close() {
	for _, all := range []map[string]*faultproxy.Link{l.API, l.Redis} {
		for _, link := range all {
			_ = link.Close()
		}
	}
}

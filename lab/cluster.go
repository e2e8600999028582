package lab

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argocd-agent/argocd-agent/lab/internal/cluster"
	"github.com/argocd-agent/argocd-agent/lab/internal/model"
)

// ArgoCDNamespace is where Argo CD, the principal and the agents live on every cluster.
const ArgoCDNamespace = model.ArgoCDNamespace

// LongRunning is the label of Job pods that shall run until somebody ends them; others complete at once.
const LongRunning = cluster.LongRunning

// Cluster is one cluster of a running lab. The address of its API server, its Redis and so on are fields of it.
type Cluster struct {
	model.ClusterState
	lab *Lab
}

// FindCluster returns a cluster by name.
func (l *Lab) FindCluster(name string) (*Cluster, error) {
	var names []string
	for _, state := range l.Clusters {
		if state.Name == name {
			return &Cluster{ClusterState: state, lab: l}, nil
		}
		names = append(names, state.Name)
	}
	return nil, fmt.Errorf("there is no cluster %q; there are: %v", name, names)
}

// Cluster returns a cluster of which the caller knows that it is there.
func (l *Lab) Cluster(name string) *Cluster {
	c, err := l.FindCluster(name)
	if err != nil {
		panic(err)
	}
	return c
}

// Hub returns the hub's cluster.
func (l *Lab) Hub() *Cluster { return l.Cluster(model.HubName) }

// Admin is a client configuration with all rights.
func (c *Cluster) Admin() *rest.Config { return c.config(c.Kubeconfig) }

// AsInstalled is a client configuration with exactly the rights that the install manifests give the principal (on the
// hub) or the agent (on a spoke). Its kubeconfig is c.RunAs.File.
func (c *Cluster) AsInstalled() *rest.Config { return c.config(c.RunAs.File) }

func (c *Cluster) config(file string) *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		panic(fmt.Errorf("load %s, which the lab wrote: %w", file, err))
	}
	config.QPS, config.Burst = -1, -1
	config.WarningHandler = rest.NoWarnings{} // Argo CD's finalizer alone makes one for each write
	return config
}

// Client is a typed client with all rights.
func (c *Cluster) Client() kubernetes.Interface { return kubernetes.NewForConfigOrDie(c.Admin()) }

// Dynamic is a client for any kind with all rights.
func (c *Cluster) Dynamic() dynamic.Interface { return dynamic.NewForConfigOrDie(c.Admin()) }

// Apply applies a YAML stream with all rights; objects without a namespace go to Argo CD's.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	return cluster.Apply(ctx, c.Admin(), ArgoCDNamespace, []byte(manifests))
}

// LogInPods adds a line to what every simulated pod of the cluster logs.
func (c *Cluster) LogInPods(text string) error { return cluster.AppendPodLog(c.PodLog, text) }

// Component is the full name of one of the cluster's components, such as hub/etcd.
func (c *Cluster) Component(name string) string { return c.Name + "/" + name }

// CA is the certificate of the cluster's authority, as PEM.
func (c *Cluster) CA() ([]byte, error) { return os.ReadFile(c.CAFile) }

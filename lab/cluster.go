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

// ArgoCDNamespace is the namespace of Argo CD, the principal and the agents on every cluster.
const ArgoCDNamespace = model.ArgoCDNamespace

// LongRunning is the label of Job pods that run until they are deleted. Other Job pods complete immediately.
const LongRunning = cluster.LongRunning

// Cluster is one cluster of a running lab. Its fields have the addresses of its API server, its Redis and so on.
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

// Cluster returns an existing cluster by name.
func (l *Lab) Cluster(name string) *Cluster {
	c, err := l.FindCluster(name)
	if err != nil {
		panic(err)
	}
	return c
}

// Hub returns the hub's cluster.
func (l *Lab) Hub() *Cluster { return l.Cluster(model.HubName) }

// Admin returns a client configuration with all permissions.
func (c *Cluster) Admin() *rest.Config { return c.config(c.Kubeconfig) }

// AsInstalled returns a client configuration with exactly the permissions that the install manifests grant the
// principal (on the hub) or the agent (on a spoke). Its kubeconfig is c.RunAs.File.
func (c *Cluster) AsInstalled() *rest.Config { return c.config(c.RunAs.File) }

func (c *Cluster) config(file string) *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		panic(fmt.Errorf("load %s, which the lab wrote: %w", file, err))
	}
	config.QPS, config.Burst = -1, -1
	config.WarningHandler = rest.NoWarnings{} // Argo CD's finalizer causes a warning for each write
	return config
}

// Client returns a typed client with all permissions.
func (c *Cluster) Client() kubernetes.Interface { return kubernetes.NewForConfigOrDie(c.Admin()) }

// Dynamic returns a client for any kind with all permissions.
func (c *Cluster) Dynamic() dynamic.Interface { return dynamic.NewForConfigOrDie(c.Admin()) }

// Apply applies a YAML stream with all permissions. Objects without a namespace go to the Argo CD namespace.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	return cluster.Apply(ctx, c.Admin(), ArgoCDNamespace, []byte(manifests))
}

// LogInPods adds a line to the log of every simulated pod of the cluster.
func (c *Cluster) LogInPods(text string) error { return cluster.AppendPodLog(c.PodLog, text) }

// Component returns the full name of a component of the cluster, such as hub/etcd.
func (c *Cluster) Component(name string) string { return c.Name + "/" + name }

// CA returns the CA certificate of the cluster, as PEM.
func (c *Cluster) CA() ([]byte, error) { return os.ReadFile(c.CAFile) }

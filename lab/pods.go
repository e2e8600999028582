package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/argocd-agent/argocd-agent/lab/internal/model"
	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
	"github.com/argocd-agent/argocd-agent/lab/podrun"
)

// RunDeployment runs the container of a Deployment as a local process: binary replaces the image. Arguments,
// environment, mounted Secrets and the token of the ServiceAccount are those of the Deployment. It ends with Stop, with
// this process, or with the lab. Its output is in the logs of the lab. Every port is mapped to a local one, and names
// of Argo CD Services to the addresses of the cluster. change can change the options.
func (c *Cluster) RunDeployment(
	ctx context.Context, manifest []byte, name, binary string, change func(*podrun.Options),
) (*podrun.Pod, error) {
	template, err := podrun.Template(manifest, name)
	if err != nil {
		return nil, err
	}
	ca, err := c.CA()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", name, err)
	}
	folder, err := os.MkdirTemp(filepath.Dir(c.Kubeconfig), "pod-"+name+"-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for %s: %w", name, err)
	}
	log := filepath.Join(model.LogFolder(c.lab.Dir()), c.Name+"-"+filepath.Base(folder)+".log")
	output, err := os.Create(log) // stays open for restarts of the pod
	if err != nil {
		return nil, fmt.Errorf("create the log of %s: %w", name, err)
	}
	options := podrun.Options{
		Template: template, Namespace: ArgoCDNamespace, Dir: folder, Binary: binary,
		Source: podrun.FromClient(c.Client()), Server: podrun.Server{URL: c.Server, CA: ca},
		Ports: map[int32]int{}, Addresses: c.serviceAddresses(), Env: map[string]string{}, Output: output,
	}
	mark, value, _ := strings.Cut(proc.LabVariable(c.lab.Dir()), "=")
	options.Env[mark] = value
	for _, container := range template.Spec.Containers {
		for _, port := range container.Ports {
			if options.Ports[port.ContainerPort], err = c.lab.Port(ctx); err != nil {
				return nil, err
			}
		}
	}
	if change != nil {
		change(&options)
	}
	return podrun.Start(ctx, options)
}

// serviceAddresses maps the names of Argo CD Services, in all forms of manifests, to their addresses.
func (c *Cluster) serviceAddresses() map[string]string {
	addresses := map[string]string{}
	for service, address := range map[string]string{
		"argocd-redis:6379":       c.Redis.Address,
		"argocd-repo-server:8081": c.RepoServer,
	} {
		if address == "" {
			continue
		}
		host, port, _ := strings.Cut(service, ":")
		for _, suffix := range []string{"", "." + ArgoCDNamespace, "." + ArgoCDNamespace + ".svc", "." + ArgoCDNamespace + ".svc.cluster.local"} {
			addresses[host+suffix+":"+port] = address
		}
	}
	return addresses
}

package cluster

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/lab/internal/model"
)

// mounted lists the ConfigMaps that the pods of Argo CD mount as directories: certificates of Git servers, known hosts
// and GPG keys. Processes have no kubelet, so the lab writes the directories.
var mounted = []string{"argocd-tls-certs-cm", "argocd-ssh-known-hosts-cm", "argocd-gpg-keys-cm"}

func (c *Cluster) mount(configMap string) string { return c.path("mounts", configMap) }

func (c *Cluster) makeMounts() error {
	for _, name := range mounted {
		if err := os.MkdirAll(c.mount(name), 0o700); err != nil {
			return fmt.Errorf("create the mount of %s: %w", name, err)
		}
	}
	return nil
}

// KeepMounts keeps the directories equal to the ConfigMaps until ctx is done. It is faster than a kubelet, which takes
// up to a minute.
func (c *Cluster) KeepMounts(ctx context.Context) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return
	}
	var all sync.WaitGroup
	for _, name := range mounted {
		all.Go(func() {
			for ctx.Err() == nil {
				c.followMount(ctx, client, name)
				select { // the API server is unreachable: retry later
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	all.Wait()
}

// TrustGit adds the certificate of the lab's Git server to the trusted certificates of Argo CD.
func (c *Cluster) TrustGit(ctx context.Context, git model.Git) error {
	ca, err := os.ReadFile(git.CAFile)
	if err != nil {
		return fmt.Errorf("trust the Git server: %w", err)
	}
	address, err := url.Parse(git.URL)
	if err != nil {
		return fmt.Errorf("trust the Git server: %w", err)
	}
	manifest, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": "argocd-tls-certs-cm", "namespace": model.ArgoCDNamespace, "labels": argocdLabels("argocd-tls-certs-cm"),
		},
		"data": map[string]any{address.Hostname(): string(ca)},
	})
	if err != nil {
		return err
	}
	if err := c.apply(ctx, manifest); err != nil {
		return err
	}
	return writeMount(c.mount("argocd-tls-certs-cm"), map[string]string{address.Hostname(): string(ca)})
}

// followMount writes one ConfigMap whenever it changes, until the watch ends.
func (c *Cluster) followMount(ctx context.Context, client kubernetes.Interface, name string) {
	watch, err := client.CoreV1().ConfigMaps(model.ArgoCDNamespace).
		Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		if configMap, ok := event.Object.(*corev1.ConfigMap); ok {
			_ = writeMount(c.mount(name), configMap.Data)
		}
	}
}

// writeMount makes the files of a directory equal to data.
func writeMount(folder string, data map[string]string) error {
	present, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, file := range present {
		if _, wanted := data[file.Name()]; !wanted {
			if err := os.Remove(filepath.Join(folder, file.Name())); err != nil {
				return err
			}
		}
	}
	for name, content := range data {
		file := filepath.Join(folder, name)
		if old, err := os.ReadFile(file); err == nil && string(old) == content {
			continue
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

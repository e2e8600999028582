package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/lab/internal/model"
)

// SaveVariable is the environment variable with the directory for logs and objects of failed tests.
const SaveVariable = "ARGOCD_AGENT_FAILURES"

func saveIfFailed(t testing.TB, l *Lab) {
	t.Helper()
	if !t.Failed() {
		return
	}
	parent := os.Getenv(SaveVariable)
	if parent == "" {
		parent = filepath.Join(os.TempDir(), "argocd-agent-failures")
	}
	name := regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(t.Name(), "-")
	folder := filepath.Join(parent, name+"-"+time.Now().Format("20060102-150405"))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err := l.Save(ctx, folder)
	t.Logf("logs of all components and objects of all clusters are in %s", folder)
	if err != nil {
		t.Logf("not everything could be saved: %v", err)
	}
}

// Save copies the logs of all components and the objects of all clusters to a directory, as far as possible, without
// values of Secrets.
func (l *Lab) Save(ctx context.Context, folder string) error {
	var problems []error
	logs := filepath.Join(folder, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("create a directory for what is saved: %w", err)
	}
	problems = append(problems, os.CopyFS(logs, os.DirFS(model.LogFolder(l.Dir()))))
	if status, err := l.Status(ctx); err != nil {
		problems = append(problems, err)
	} else {
		problems = append(problems, model.Write(filepath.Join(folder, "status.json"), status))
	}
	for _, state := range l.Clusters {
		problems = append(problems, l.Cluster(state.Name).saveObjects(ctx, filepath.Join(folder, "objects", state.Name)))
	}
	return errors.Join(problems...)
}

// saveObjects writes all objects of the cluster, one file per kind.
func (c *Cluster) saveObjects(ctx context.Context, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	kinds, err := c.Client().Discovery().ServerPreferredResources()
	if len(kinds) == 0 {
		return fmt.Errorf("list kinds of %s: %w", c.Name, err)
	}
	client := c.Dynamic()
	var problems []error
	for _, group := range kinds {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, kind := range group.APIResources {
			if !strings.Contains(strings.Join(kind.Verbs, " "), "list") {
				continue
			}
			list, err := client.Resource(version.WithResource(kind.Name)).List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) > 0 {
				err = writeObjects(filepath.Join(folder, kind.Name+"."+version.Group+".yaml"), list.Items)
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("save the %s of %s: %w", kind.Name, c.Name, err))
			}
		}
	}
	return errors.Join(problems...)
}

func writeObjects(file string, objects []unstructured.Unstructured) error {
	var all []byte
	for _, object := range objects {
		if object.GetKind() == "Secret" {
			hideValues(object)
		}
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		all = fmt.Appendf(all, "---\n%s", text)
	}
	return os.WriteFile(file, all, 0o600)
}

// hideValues keeps the keys of a Secret and the lengths of its values.
func hideValues(secret unstructured.Unstructured) {
	data, _, _ := unstructured.NestedStringMap(secret.Object, "data")
	for key, value := range data {
		data[key] = fmt.Sprintf("(%d characters)", len(value))
	}
	_ = unstructured.SetNestedStringMap(secret.Object, data, "data")
	unstructured.RemoveNestedField(secret.Object, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
	unstructured.RemoveNestedField(secret.Object, "metadata", "managedFields")
}

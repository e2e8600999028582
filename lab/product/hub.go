package product

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent/argocd-agent/lab"
)

// PrepareHub creates a namespace for each agent, and an AppProject that permits these namespaces.
func PrepareHub(ctx context.Context, l *lab.Lab) error {
	for _, one := range l.Clusters {
		if one.Role == lab.Hub {
			continue
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: one.Name}}
		if _, err := l.Hub().Client().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s on the hub: %w", one.Name, err)
		}
	}
	projects := l.Hub().Dynamic().Resource(schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"})
	_, err := projects.Namespace(lab.ArgoCDNamespace).Patch(ctx, "default", types.MergePatchType,
		[]byte(`{"spec":{"sourceNamespaces":["*"]}}`), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("let the project default be used from the agents' namespaces: %w", err)
	}
	return nil
}

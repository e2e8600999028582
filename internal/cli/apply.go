package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// apply applies a YAML stream, as kubectl apply --server-side does, and returns how many objects it had.
func (c *cluster) apply(ctx context.Context, manifests []byte) (int, error) {
	groups, err := restmapper.GetAPIGroupResources(c.kube.Discovery())
	if err != nil {
		return 0, fmt.Errorf("find out what the cluster knows: %w", c.explain(err))
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	n := 0
	for {
		var u unstructured.Unstructured
		switch err := decoder.Decode(&u.Object); {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, fmt.Errorf("read the manifests: %w", err)
		case len(u.Object) == 0:
			continue
		}
		kind := u.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return n, fmt.Errorf("the cluster does not know %s: %w", kind.Kind, err)
		}
		var to dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
		if mapping.Scope.Name() == "namespace" {
			to = c.dynamic.Resource(mapping.Resource).Namespace(u.GetNamespace())
		}
		body, err := json.Marshal(&u)
		if err != nil {
			return n, fmt.Errorf("write %s %s: %w", kind.Kind, u.GetName(), err)
		}
		force := true
		if _, err := to.Patch(ctx, u.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: fieldManager, Force: &force, FieldValidation: metav1.FieldValidationStrict}); err != nil {
			return n, fmt.Errorf("apply %s %s: %w", kind.Kind, u.GetName(), c.explain(err))
		}
		n++
	}
}

// whyNotReady looks at the agent's pod for a reason.
func (c *cluster) whyNotReady(ctx context.Context) string {
	pods, err := c.kube.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + agentDeployment})
	if err != nil || len(pods.Items) == 0 {
		return ""
	}
	pod := &pods.Items[len(pods.Items)-1]
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil {
			return "the pod waits: " + strings.TrimSpace(waiting.Reason+" "+waiting.Message)
		}
	}
	if pod.Status.Phase == corev1.PodPending {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return "the pod waits for a node: " + condition.Message
			}
		}
		return "the pod is being started"
	}
	return c.lastWarning(ctx, pod.Name)
}

// lastWarning is the last thing that the agent has complained about.
func (c *cluster) lastWarning(ctx context.Context, pod string) string {
	lines := int64(20)
	log, err := c.kube.CoreV1().Pods(c.namespace).GetLogs(pod, &corev1.PodLogOptions{TailLines: &lines}).DoRaw(ctx)
	if err != nil {
		return ""
	}
	last := ""
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "WARN") || strings.Contains(line, "ERROR") {
			last = strings.TrimSpace(line)
		}
	}
	return last
}

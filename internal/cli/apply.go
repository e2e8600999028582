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

// apply applies a YAML stream like kubectl apply --server-side and returns the number of objects.
func (c *cluster) apply(ctx context.Context, manifests []byte) (int, error) {
	groups, err := restmapper.GetAPIGroupResources(c.kube.Discovery())
	if err != nil {
		return 0, fmt.Errorf("discover API resources: %w", c.explain(err))
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
			return n, fmt.Errorf("decode manifests: %w", err)
		case len(u.Object) == 0:
			continue
		}
		kind := u.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return n, fmt.Errorf("kind %s is not served: %w", kind.Kind, err)
		}
		var to dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
		if mapping.Scope.Name() == "namespace" {
			to = c.dynamic.Resource(mapping.Resource).Namespace(u.GetNamespace())
		}
		body, err := json.Marshal(&u)
		if err != nil {
			return n, fmt.Errorf("encode %s %s: %w", kind.Kind, u.GetName(), err)
		}
		force := true
		if _, err := to.Patch(ctx, u.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: fieldManager, Force: &force, FieldValidation: metav1.FieldValidationStrict}); err != nil {
			return n, fmt.Errorf("apply %s %s: %w", kind.Kind, u.GetName(), c.explain(err))
		}
		n++
	}
}

// notReadyReason returns why the pod of the agent is not ready, if known.
func (c *cluster) notReadyReason(ctx context.Context) string {
	pods, err := c.kube.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: ourPods(agentDeployment)})
	if err != nil || len(pods.Items) == 0 {
		return ""
	}
	pod := &pods.Items[len(pods.Items)-1]
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil {
			return "pod is waiting: " + strings.TrimSpace(waiting.Reason+" "+waiting.Message)
		}
	}
	if pod.Status.Phase == corev1.PodPending {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return "pod is not scheduled: " + condition.Message
			}
		}
		return "pod is starting"
	}
	return c.lastWarning(ctx, pod.Name)
}

// lastWarning returns the last warning or error in the log of a pod.
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

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/internal/observe"
)

// podWarning is a warning in the health output of a pod, for example a write outage. During a write outage, no object
// shows it.
type podWarning struct{ pod, text string }

// Limits of requests to pods. Commands that print warnings only in addition to their output use the shorter timeout.
const (
	maxPods           = 16
	podTimeout        = 3 * time.Second
	podWarningTimeout = time.Second
)

// podWarnings reads the health output of the pods of a component through the API server, which still serves reads during
// a write outage. answered is the number of pods that answered. The error is that of a pod that did not.
func (c *cluster) podWarnings(ctx context.Context, component string, timeout time.Duration) (found []podWarning, answered int, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pods, err := c.kube.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: ourPods(component), Limit: maxPods})
	if err != nil {
		return nil, 0, c.explain(err)
	}
	var mu sync.Mutex
	var work errgroup.Group
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		work.Go(func() error {
			text, err := c.healthOf(ctx, pod)
			if err != nil {
				return fmt.Errorf("read health of pod %s: %w", pod.Name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			answered++
			for line := range strings.Lines(text) {
				if warning, ok := strings.CutPrefix(strings.TrimSpace(line), observe.WarningWord+" "); ok {
					_, warning, _ = strings.Cut(warning, ": ")
					found = append(found, podWarning{pod.Name, warning})
				}
			}
			return nil
		})
	}
	err = work.Wait()
	slices.SortStableFunc(found, func(a, b podWarning) int { return strings.Compare(a.pod, b.pod) })
	return found, answered, err
}

// portNamed returns the number of a port of a pod.
func portNamed(pod *corev1.Pod, name string) (string, error) {
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == name {
				return strconv.Itoa(int(port.ContainerPort)), nil
			}
		}
	}
	return "", errors.New("no port named " + name)
}

// healthOf returns the verbose health output of a pod.
func (c *cluster) healthOf(ctx context.Context, pod *corev1.Pod) (string, error) {
	port, err := portNamed(pod, "healthz")
	if err != nil {
		return "", err
	}
	text, err := c.kube.CoreV1().RESTClient().Get().Namespace(c.namespace).Resource("pods").Name(pod.Name+":"+port).
		SubResource("proxy").Suffix("healthz").Param("verbose", "true").MaxRetries(0).DoRaw(ctx)
	switch output := string(text); {
	case strings.Contains(output, " objects"): // a health check of principal and agent, ready or not
		return output, nil
	case output != "" && !strings.Contains(output, `"Status"`):
		return "", fmt.Errorf("unexpected response: %.80q", output)
	case err == nil:
		return "", errors.New("empty response")
	}
	return "", c.explain(err)
}

// warnWriteOutage prints the warnings of the principal pods. Without permission to read them, it prints nothing.
func (p *Program) warnWriteOutage(ctx context.Context, hub *cluster) {
	found, _, _ := hub.podWarnings(ctx, principalDeployment, cmp.Or(p.podTimeout, podWarningTimeout))
	for _, one := range found {
		p.warn("Pod %s reports a write outage on the hub: %s. Agent and Application status may be out of date.", one.pod, printable(one.text))
	}
}

// writeOutage checks the warnings of the pods of a component.
func (e *checkRun) writeOutage(ctx context.Context, c *cluster, component string) {
	found, answered, err := c.podWarnings(ctx, component, cmp.Or(e.program.podTimeout, podTimeout))
	for _, one := range found {
		e.problem("writes", "repair the API server: if etcd is full, compact and defragment it and disarm the alarm; if it is overloaded, find the client. Nothing is lost: pending writes are retried",
			"Pod %s reports: %s", one.pod, one.text)
	}
	switch {
	case err != nil:
		e.skipped("writes", err)
	case answered > 0 && len(found) == 0:
		e.ok("writes", "the API server accepts writes of %s", component)
	}
}

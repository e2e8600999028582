package install

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/argocd-agent/argocd-agent/lab"
)

// helmTests runs `helm test` on both sides, and once more with a principal that cannot be reached.
func helmTests(t *testing.T, l *lab.Lab, binary string, hub, spoke map[int32]int) {
	t.Helper()
	for cluster, ports := range map[*lab.Cluster]map[int32]int{l.Hub(): hub, l.Cluster("managed"): spoke} {
		if out, err := helmTest(t, l, cluster, binary, ports); err != nil || !strings.Contains(out, "Phase:          Succeeded") {
			t.Errorf("helm test on %s: %v: %s", cluster.Name, err, out)
		}
	}
	if out, err := helmTest(t, l, l.Hub(), binary, nil, "--timeout=3s"); err == nil || !strings.Contains(out, "Phase:          Failed") {
		t.Errorf("helm test passes without a principal: %v: %s", err, out)
	}
}

// helmTest runs `helm test` on a cluster. Nodes are simulated, so the test executes the command of the pod as a process,
// with more arguments, and writes the result to the status of the pod, as a kubelet does.
func helmTest(t *testing.T, l *lab.Lab, cluster *lab.Cluster, binary string, ports map[int32]int, more ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	services := httptest.NewServer(serviceProxy(cluster, ports))
	defer services.Close()
	kubelet := make(chan error, 1)
	go func() {
		kubelet <- runTestPod(ctx, cluster, func(ctx context.Context, args []string) error {
			command := exec.CommandContext(ctx, binary, append(args, more...)...)
			command.Env = append(os.Environ(), "HTTP_PROXY="+services.URL)
			out, err := command.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		})
	}()
	out, err := l.Command(t.Context(), "helm", "test", "argocd-agent", "--kube-context", cluster.Name, "--namespace", lab.ArgoCDNamespace, "--timeout", "2m").CombinedOutput()
	cancel()
	if stopped := <-kubelet; stopped != nil && !errors.Is(stopped, context.Canceled) {
		t.Errorf("execute the pod: %v", stopped)
	}
	return string(out), err
}

// serviceProxy is an HTTP proxy that leads requests for a Service to the process of the Deployment that it selects.
func serviceProxy(cluster *lab.Cluster, ports map[int32]int) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			local := 1 // nothing listens there
			if port, err := containerPort(r.In.Context(), cluster, r.In.URL.Hostname(), r.In.URL.Port()); err == nil && ports[port] != 0 {
				local = ports[port]
			}
			r.Out.URL = &url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(local), Path: r.In.URL.Path}
		},
	}
}

// containerPort returns the port of the container to which a port of a Service leads.
func containerPort(ctx context.Context, cluster *lab.Cluster, name, port string) (int32, error) {
	service, err := cluster.Client().CoreV1().Services(lab.ArgoCDNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	deployments, err := cluster.Client().AppsV1().Deployments(lab.ArgoCDNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for _, from := range service.Spec.Ports {
		for _, one := range deployments.Items {
			pod := one.Spec.Template
			if strconv.Itoa(int(from.Port)) != port || !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
				continue
			}
			for _, to := range pod.Spec.Containers[0].Ports {
				if to.Name == from.TargetPort.StrVal {
					return to.ContainerPort, nil
				}
			}
		}
	}
	return 0, fmt.Errorf("service %s leads port %s to no Deployment", name, port)
}

// runTestPod waits for the pod of `helm test`, executes its arguments and writes its phase.
func runTestPod(ctx context.Context, cluster *lab.Cluster, execute func(ctx context.Context, args []string) error) error {
	pods := cluster.Client().CoreV1().Pods(lab.ArgoCDNamespace)
	pod, err := awaitRunningTestPod(ctx, cluster)
	if err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodSucceeded
	if err := execute(ctx, pod.Spec.Containers[0].Args); err != nil {
		pod.Status.Phase, pod.Status.Message = corev1.PodFailed, err.Error()
	}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// awaitRunningTestPod returns the pod of `helm test` when the simulated node reports that it runs.
func awaitRunningTestPod(ctx context.Context, cluster *lab.Cluster) (*corev1.Pod, error) {
	watch, err := cluster.Client().CoreV1().Pods(lab.ArgoCDNamespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case event, ok := <-watch.ResultChan():
			if !ok {
				return nil, errors.New("the watch of pods ended")
			}
			if pod, ok := event.Object.(*corev1.Pod); ok && pod.Annotations["helm.sh/hook"] == "test" && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				return pod, nil
			}
		}
	}
}

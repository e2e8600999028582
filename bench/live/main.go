// Command live compares live access with direct access: objects, logs and exec sessions through the hub and from the
// API server, Redis through the proxy and from Redis. Both measurements alternate, so that other load on the machine
// affects both. Clusters and binaries are real. Pods are simulated by a real kubelet API.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent/argocd-agent/bench/report"
	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

func main() {
	only := regexp.MustCompile("")
	flag.Func("only", "regular `expression` of the parts to measure, such as strokes", func(text string) (err error) {
		only, err = regexp.Compile(text)
		return err
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is a hub with one agent, w1.
type bench struct {
	lab     *lab.Lab
	product *product.Product
	agent   *product.Agent
	spoke   *lab.Cluster
	direct  *accessPath // direct access to the API server
	hub     *accessPath // through the hub
	pod     string
	*report.Report
}

// namespace of the measured objects on the spoke.
const namespace = "bench"

func run(ctx context.Context, only *regexp.Regexp) error {
	folder, err := os.MkdirTemp("", "bench-live-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	report.Progress("building")
	file, err := product.Build(ctx, folder)
	if err != nil {
		return err
	}
	report.Progress("starting a hub and a spoke")
	l, err := lab.Up(ctx, lab.Options{Dir: filepath.Join(folder, "lab"), Spokes: []lab.Spoke{{Name: "w1", Role: lab.Managed}},
		WhilePID: os.Getpid(), Ephemeral: true, Progress: os.Stderr})
	if err != nil {
		return err
	}
	defer func() { _ = l.Down(context.Background()) }()
	b := &bench{lab: l, spoke: l.Cluster("w1"), Report: report.New("Live access through the hub, and directly")}
	if b.product, err = product.New(l, file); err != nil {
		return err
	}
	defer b.product.Close()
	if err := b.start(ctx); err != nil {
		return err
	}
	parts := slices.DeleteFunc([]report.Part{
		{Name: "GET of one object", Do: b.objects},
		{Name: "throughput of logs", Do: b.logs},
		{Name: "key strokes with 100 log followers and a list of 50 MB", Do: b.keyStrokes},
		{Name: "Redis: what passes through", Do: b.passThrough},
		{Name: "Redis: keys of agents", Do: b.agentKeys},
	}, func(p report.Part) bool { return !only.MatchString(p.Name) })
	if err := report.Run(ctx, parts...); err != nil {
		return err
	}
	return b.Finish("dist/bench-live.json")
}

// start starts the binaries and creates the measured objects.
func (b *bench) start(ctx context.Context) error {
	if err := product.GrantLiveAccess(ctx, b.spoke, b.lab.Spec.Install); err != nil {
		return err
	}
	hub := b.lab.Hub().Client().CoreV1().Namespaces()
	if _, err := hub.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "w1"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := b.lab.Hub().Apply(ctx, openProject); err != nil {
		return err
	}
	if err := b.product.StartPrincipal(ctx); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(b.product.Address())
	if err != nil {
		return err
	}
	// The agent connects directly to the principal, so that the fault proxy of the lab is not measured.
	b.agent, err = b.product.StartAgent(ctx, "w1", "managed", "--resource-proxy-level", "all", "--server-port", port)
	if err != nil {
		return err
	}
	if err := b.agent.Connected(ctx); err != nil {
		return err
	}
	if err := b.spoke.Apply(ctx, workload); err != nil {
		return err
	}
	if err := b.application(ctx); err != nil {
		return err
	}
	if b.pod, err = b.runningPod(ctx); err != nil {
		return err
	}
	return b.openPaths()
}

// openProject permits Applications of all namespaces on all clusters.
const openProject = `
{apiVersion: argoproj.io/v1alpha1, kind: AppProject, metadata: {name: default, namespace: argocd},
  spec: {sourceRepos: ["*"], sourceNamespaces: ["*"], destinations: [{name: "*", namespace: "*"}]}}
`

const workload = `
{apiVersion: v1, kind: Namespace, metadata: {name: bench}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: bench}, data: {a: b}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: bench}
spec: {containers: [{name: web, image: web}]}
`

// application returns an Application of the agent. It is not deployed, so that the entries of the benchmark stay in the
// spoke's Redis.
func (b *bench) application(ctx context.Context) error {
	if err := b.lab.Kill(ctx, "w1/application-controller"); err != nil {
		return err
	}
	kind := schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	app := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": "shop", "namespace": "w1"},
		"spec": map[string]any{"project": "default", "source": map[string]any{"repoURL": "https://git.example/shop", "path": "."},
			"destination": map[string]any{"name": "w1", "namespace": "shop"}},
	}}
	if _, err := b.lab.Hub().Dynamic().Resource(kind).Namespace("w1").Create(ctx, app, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create an Application: %w", err)
	}
	return until(ctx, "the Application on the spoke", func() error {
		_, err := b.spoke.Dynamic().Resource(kind).Namespace(lab.ArgoCDNamespace).Get(ctx, "shop", metav1.GetOptions{})
		return err
	})
}

func (b *bench) runningPod(ctx context.Context) (string, error) {
	return "web", until(ctx, "a pod that runs", func() error {
		pod, err := b.spoke.Client().CoreV1().Pods(namespace).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
}

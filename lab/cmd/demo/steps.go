package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/podrun"
)

// demo is the state of the setup.
type demo struct {
	began  time.Time
	name   string // name of the lab
	root   string // root of the repository
	folder string // directory of the binaries
	lab    *lab.Lab
	hub    map[int32]int // ports of the principal
	pods   map[string]*podrun.Pod
}

// tools are the tools of the lab that the demo needs. Applications of the demo are plain manifests.
var tools = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok", "argocd"}

var spokes = []lab.Spoke{{Name: "managed", Role: lab.Managed}, {Name: "autonomous", Role: lab.Autonomous}}

const (
	principal = "argocd-agent-principal"
	agent     = "argocd-agent-agent"
)

func (d *demo) program(name string) string { return filepath.Join(d.folder, name) }

func (d *demo) build(ctx context.Context) (err error) {
	if d.root, err = checkout(); err != nil {
		return err
	}
	if d.folder, err = os.MkdirTemp("", "argocd-agent-demo-"); err != nil {
		return fmt.Errorf("create a directory for the binaries: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", d.folder+"/", "./cmd/...") // flags of `go run`: packages are compiled once
	cmd.Dir = d.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binaries: %w: %s", err, out)
	}
	return nil
}

func (d *demo) up(ctx context.Context, name string) error {
	folder, err := lab.DefaultDir(name)
	if err != nil {
		return err
	}
	d.name, d.pods = name, map[string]*podrun.Pod{}
	if d.lab, err = lab.Up(ctx, lab.Options{Dir: folder, Spokes: spokes, Tools: tools, WhilePID: os.Getpid(), Ephemeral: true, Progress: os.Stderr}); err != nil {
		return err
	}
	// The shell of the lab finds argocd-agentctl next to the other tools.
	const ctl = "argocd-agentctl"
	if err := os.Symlink(d.program(ctl), filepath.Join(d.lab.Dir(), "bin", ctl)); err != nil {
		return fmt.Errorf("put %s into the lab's shell: %w", ctl, err)
	}
	return nil
}

// output runs a command with the kubeconfig of the lab, and returns its output.
func (d *demo) output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := d.lab.Command(ctx, program, args...)
	if strings.HasPrefix(program, "argocd-agent") {
		cmd = exec.CommandContext(ctx, d.program(program), args...)
		cmd.Env = append(os.Environ(), d.lab.Environment()...)
	}
	cmd.Dir = d.root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// installPrincipal installs the principal as a platform team does.
func (d *demo) installPrincipal(ctx context.Context) error {
	if _, err := d.output(ctx, "argocd-agentctl", "pki", "init", "--principal-context", "hub"); err != nil {
		return err
	}
	resources, err := d.lab.Port(ctx)
	if err != nil {
		return err
	}
	manifest, err := d.overlay(ctx, map[string]string{
		"ARGOCD_PRINCIPAL_NAMESPACE_CREATE_ENABLE": "true",
		"ARGOCD_PRINCIPAL_TLS_SERVER_NAMES":        "127.0.0.1",
		"ARGOCD_PRINCIPAL_REDIS_SERVER_ADDRESS":    d.lab.Hub().Redis.Address, // a process, not a Service
		"ARGOCD_PRINCIPAL_RESOURCE_PROXY_ADDRESS":  "127.0.0.1:" + strconv.Itoa(resources),
	})
	if err != nil {
		return err
	}
	if err := d.lab.Hub().Apply(ctx, manifest); err != nil {
		return fmt.Errorf("install the principal: %w", err)
	}
	if err := d.start(ctx, d.lab.Hub(), manifest, principal, func(o *podrun.Options) {
		o.Ports[9090] = resources
		d.hub = o.Ports
	}); err != nil {
		return err
	}
	if err := d.ready(ctx, "hub/"+principal); err != nil {
		return err
	}
	// Resource trees and live state of the agents' Applications come through the principal.
	if err := d.lab.Restart(ctx, "hub/argocd-server", lab.Flag("--redis", "127.0.0.1:"+strconv.Itoa(d.hub[6379]))); err != nil {
		return fmt.Errorf("point argocd-server at the Redis proxy: %w", err)
	}
	return d.lab.Hub().Apply(ctx, project)
}

// overlay returns the manifests of the principal with settings, from an overlay of install/kustomize/principal.
func (d *demo) overlay(ctx context.Context, settings map[string]string) (string, error) {
	base := filepath.Join(d.folder, "install") // an overlay refers to its base with a relative path
	if err := os.CopyFS(base, os.DirFS(filepath.Join(d.root, "install"))); err != nil {
		return "", fmt.Errorf("copy the manifests of the principal: %w", err)
	}
	var text strings.Builder
	text.WriteString(`resources: [../kustomize/principal, ../kustomize/principal/rbac-namespace-create.yaml]
namespace: argocd
patches:
- patch: |-
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: argocd-agent-params, namespace: argocd}
    data:
`)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "      %s: %q\n", name, settings[name])
	}
	folder := filepath.Join(base, "demo")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text.String()), 0o600); err != nil {
		return "", err
	}
	return d.output(ctx, "kubectl", "kustomize", "--load-restrictor=LoadRestrictionsNone", folder)
}

// project permits Applications of the agents' namespaces in the AppProject default, and places it on all managed
// clusters.
const project = `
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default, namespace: argocd}
spec:
  sourceRepos: ["*"]
  sourceNamespaces: ["*"]
  destinations: [{name: "*", namespace: "*", server: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
`

// start runs the container of a Deployment.
func (d *demo) start(ctx context.Context, c *lab.Cluster, manifest, name string, change func(*podrun.Options)) error {
	pod, err := c.RunDeployment(context.WithoutCancel(ctx), []byte(manifest), name, d.program("argocd-agent"), func(o *podrun.Options) {
		o.ProbeEvery = 200 * time.Millisecond
		if change != nil {
			change(o)
		}
	})
	if err != nil {
		return err
	}
	d.pods[c.Name+"/"+name] = pod
	return nil
}

func (d *demo) ready(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := d.pods[name].WaitReady(ctx); err != nil {
		return fmt.Errorf("%s does not become ready; its log is in %s: %w", name, filepath.Join(d.lab.Dir(), "logs"), err)
	}
	return nil
}

// join adds a cluster with a token on the hub and one command on the cluster. The command waits until the agent is
// connected. In the meantime, the container of the created Deployment is started.
func (d *demo) join(ctx context.Context, spoke lab.Spoke) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	token, err := d.output(ctx, "argocd-agentctl", "agent", "join-token", spoke.Name, "--mode", string(spoke.Role), "--label", "env=demo",
		"--address", "127.0.0.1:"+strconv.Itoa(d.hub[8443]), "--principal-context", "hub", "-o", "name")
	if err != nil {
		return err
	}
	joined := make(chan error, 1)
	c := d.lab.Cluster(spoke.Name)
	go func() {
		_, err := d.output(ctx, "argocd-agentctl", "join", strings.TrimSpace(token), "--agent-context", spoke.Name, "--live-exec",
			"--set", "ARGOCD_AGENT_RESOURCE_PROXY_LEVEL=all,REDIS_ADDR="+c.Redis.Address)
		joined <- err
	}()
	manifest, err := d.waitForDeployment(ctx, spoke.Name, joined)
	if err != nil {
		return err
	}
	if err := d.start(ctx, c, manifest, agent, removeLivenessProbes); err != nil {
		return err
	}
	if err := <-joined; err != nil {
		return err
	}
	return d.ready(ctx, spoke.Name+"/"+agent)
}

// removeLivenessProbes prevents the restart of an agent that the tour stops.
func removeLivenessProbes(o *podrun.Options) {
	for i := range o.Template.Spec.Containers {
		o.Template.Spec.Containers[i].LivenessProbe = nil
	}
}

// waitForDeployment waits for the Deployment that joining creates. It leaves the result of the command in joined.
func (d *demo) waitForDeployment(ctx context.Context, cluster string, joined chan error) (string, error) {
	deployments := d.lab.Cluster(cluster).Client().AppsV1().Deployments(lab.ArgoCDNamespace)
	for ended := false; ; {
		_, err := deployments.Get(ctx, agent, metav1.GetOptions{})
		if err == nil {
			return d.output(ctx, "kubectl", "--context", cluster, "--namespace", lab.ArgoCDNamespace, "get", "deployment", agent, "-o", "yaml")
		}
		if ended {
			return "", fmt.Errorf("the command ended before it installed anything: %w", err)
		}
		select {
		case err := <-joined:
			if err != nil {
				return "", err
			}
			joined <- nil
			ended = true // it can have ended after the request above
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

var applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}

// deploy creates an Application for each cluster, and waits until the hub shows both as Synced and Healthy.
func (d *demo) deploy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := d.createApplications(ctx, "guestbook", "default"); err != nil {
		return err
	}
	for _, spoke := range spokes {
		if err := d.healthy(ctx, spoke.Name, "guestbook"); err != nil {
			return err
		}
	}
	return nil
}

// createApplications creates an Application on the hub for the managed cluster, and one on the autonomous cluster.
func (d *demo) createApplications(ctx context.Context, name, namespace string) error {
	for _, app := range []struct {
		cluster                *lab.Cluster
		namespace, destination string
	}{
		{d.lab.Hub(), "managed", "managed"},
		{d.lab.Cluster("autonomous"), lab.ArgoCDNamespace, "in-cluster"},
	} {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
			"metadata": map[string]any{"name": name, "namespace": app.namespace},
			"spec": map[string]any{
				"project":     "default",
				"source":      map[string]any{"repoURL": d.lab.RepoURL("plain"), "path": ".", "targetRevision": "HEAD"},
				"destination": map[string]any{"name": app.destination, "namespace": namespace},
				"syncPolicy":  map[string]any{"automated": map[string]any{}, "syncOptions": []any{"CreateNamespace=true"}},
			},
		}}
		if _, err := app.cluster.Dynamic().Resource(applications).Namespace(app.namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create an Application on %s: %w", app.cluster.Name, err)
		}
	}
	return nil
}

// healthy waits until the hub shows an agent's Application as Synced and Healthy.
func (d *demo) healthy(ctx context.Context, namespace, name string) error {
	apps := d.lab.Hub().Dynamic().Resource(applications).Namespace(namespace)
	state := "nothing"
	for {
		if app, err := apps.Get(ctx, name, metav1.GetOptions{}); err == nil {
			sync, _, _ := unstructured.NestedString(app.Object, "status", "sync", "status")
			health, _, _ := unstructured.NestedString(app.Object, "status", "health", "status")
			if state = sync + ", " + health; sync == "Synced" && health == "Healthy" {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the hub shows %s of %s/%s: %w", state, namespace, name, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

var agentObjects = schema.GroupVersionResource{Group: "argocd-agent.argoproj-labs.io", Version: "v1alpha1", Resource: "agents"}

// waitForAppCount waits until the status of an Agent, which is written every few seconds, counts its Application.
func (d *demo) waitForAppCount(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	agents := d.lab.Hub().Dynamic().Resource(agentObjects).Namespace(lab.ArgoCDNamespace)
	for {
		if agent, err := agents.Get(ctx, name, metav1.GetOptions{}); err == nil {
			apps, _, _ := unstructured.NestedInt64(agent.Object, "status", "applications")
			diverged, _, _ := unstructured.NestedInt64(agent.Object, "status", "diverged")
			if apps == 1 && diverged == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the status of Agent %s does not count its Application: %w", name, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// waitUntilIdle waits until an agent's Application has no running operation.
func (d *demo) waitUntilIdle(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	apps := d.lab.Hub().Dynamic().Resource(applications).Namespace(namespace)
	for {
		app, err := apps.Get(ctx, "guestbook", metav1.GetOptions{})
		if err == nil && app.Object["operation"] == nil {
			return d.healthy(ctx, namespace, "guestbook")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the operation of %s/guestbook has not ended: %w", namespace, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// Default names of our objects. The chart can override those of the Deployments.
const (
	principalDeployment = "argocd-agent-principal"
	agentDeployment     = "argocd-agent-agent"
	paramsConfigMap     = "argocd-agent-params"
)

// settings are the arguments and the environment of a Deployment.
type settings struct {
	name      string // of the Deployment
	pods      labels.Set
	account   string // ServiceAccount
	installed bool   // the Deployment exists
	ready     bool
	image     string
	prefix    string // of its environment variables
	env       map[string]string
	flags     map[string]string
}

func (c *cluster) principalSettings(ctx context.Context) (*settings, error) {
	return c.settings(ctx, principalDeployment, "ARGOCD_PRINCIPAL_")
}

func (c *cluster) agentSettings(ctx context.Context) (*settings, error) {
	return c.settings(ctx, agentDeployment, "ARGOCD_AGENT_")
}

// settings reads the settings of a Deployment. If it does not exist, only the ConfigMap is read.
func (c *cluster) settings(ctx context.Context, deployment, prefix string) (*settings, error) {
	s := &settings{name: deployment, pods: labels.Set{nameLabel: deployment, partOfLabel: ourPartOf}, account: deployment, prefix: prefix, env: map[string]string{}, flags: map[string]string{}}
	read := map[string]map[string]string{}
	load := func(name string) (map[string]string, error) {
		if data, ok := read[name]; ok {
			return data, nil
		}
		data, err := c.configMap(ctx, name)
		read[name] = data
		return data, err
	}
	d, err := c.deployment(ctx, deployment)
	if notFound(err) {
		data, err := load(paramsConfigMap)
		maps.Copy(s.env, data)
		return s, err
	}
	if err != nil {
		return nil, fmt.Errorf("get Deployment %s: %w", deployment, c.explain(err))
	}
	s.name, s.pods, s.installed, s.ready = d.Name, d.Spec.Template.Labels, true, d.Status.ReadyReplicas > 0
	s.account = cmp.Or(d.Spec.Template.Spec.ServiceAccountName, deployment)
	if len(d.Spec.Template.Spec.Containers) == 0 {
		return s, nil
	}
	container := d.Spec.Template.Spec.Containers[0]
	s.image = container.Image
	s.readArguments(append(append([]string{}, container.Command...), container.Args...))
	return s, s.readEnvironment(&container, load)
}

const (
	nameLabel      = "app.kubernetes.io/name"
	partOfLabel    = "app.kubernetes.io/part-of"
	componentLabel = "app.kubernetes.io/component"
	ourPartOf      = "argocd-agent"
)

// ourPods returns a label selector for the pods of our component with a default name.
func ourPods(deployment string) string {
	return partOfLabel + "=" + ourPartOf + "," + componentLabel + "=" + strings.TrimPrefix(deployment, "argocd-agent-")
}

// deployment returns the Deployment with a default name. If the chart gave ours another one, or an import stopped the one
// with this name, its labels identify it.
func (c *cluster) deployment(ctx context.Context, name string) (*appsv1.Deployment, error) {
	d, err := c.kube.AppsV1().Deployments(c.namespace).Get(ctx, name, metav1.GetOptions{})
	stopped := func(d appsv1.Deployment) bool { return d.Annotations[replicasAnnotation] != "" }
	if err == nil && !stopped(*d) || err != nil && !notFound(err) || name != principalDeployment && name != agentDeployment {
		return d, err
	}
	found, listErr := c.kube.AppsV1().Deployments(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: ourPods(name)})
	if listErr != nil {
		return nil, listErr
	}
	found.Items = slices.DeleteFunc(found.Items, stopped)
	switch {
	case len(found.Items) == 1:
		return &found.Items[0], nil
	case len(found.Items) > 1:
		return nil, fmt.Errorf("%d Deployments have the labels %s, none has the name %s", len(found.Items), ourPods(name), name)
	}
	return d, err
}

func (s *settings) readEnvironment(container *corev1.Container, load func(string) (map[string]string, error)) error {
	for _, from := range container.EnvFrom {
		if from.ConfigMapRef == nil {
			continue
		}
		data, err := load(from.ConfigMapRef.Name)
		if err != nil {
			return err
		}
		for key, value := range data {
			s.env[from.Prefix+key] = value
		}
	}
	for _, one := range container.Env {
		switch {
		case one.ValueFrom == nil:
			s.env[one.Name] = one.Value
		case one.ValueFrom.ConfigMapKeyRef != nil:
			data, err := load(one.ValueFrom.ConfigMapKeyRef.Name)
			if err != nil {
				return err
			}
			s.env[one.Name] = data[one.ValueFrom.ConfigMapKeyRef.Key]
		}
	}
	return nil
}

// listFlags are the flags that commands read and that can be repeated.
var listFlags = []string{"server-address", "allowed-namespaces", preservedFlag}

// readArguments parses --flag=value, --flag value and --flag.
func (s *settings) readArguments(args []string) {
	for i, arg := range args {
		name, ok := strings.CutPrefix(arg, "--")
		if !ok {
			continue
		}
		name, value, ok := strings.Cut(name, "=")
		if !ok {
			if value = "true"; i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
				value = args[i+1]
			}
		}
		if before := s.flags[name]; slices.Contains(listFlags, name) && before != "" {
			value = before + "," + value
		}
		s.flags[name] = value
	}
}

// get returns the value of a flag, or an empty string.
func (s *settings) get(flag string) string {
	if value, ok := s.flags[flag]; ok {
		return value
	}
	variable := s.prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	switch flag { // exceptions to the naming rule
	case "server-address":
		variable = "ARGOCD_AGENT_REMOTE_SERVER"
	case "server-port":
		variable = "ARGOCD_AGENT_REMOTE_PORT"
	case "agent-mode":
		variable = "ARGOCD_AGENT_MODE"
	case "insecure-tls":
		variable = "ARGOCD_AGENT_TLS_INSECURE"
	case "redis-addr":
		variable = "REDIS_ADDR"
	}
	return s.env[variable]
}

// on reports whether a boolean flag is set.
func (s *settings) on(flag string) bool {
	value := s.get(flag)
	return value == "true" || value == "1"
}

// selfRegistration reports whether the first connection of an agent creates its Agent.
func (s *settings) selfRegistration() bool {
	required := s.get("require-registration")
	return required == "false" || required == "0" || s.on("enable-self-cluster-registration")
}

// labelSelector returns nil if there is no label selector.
func (s *settings) labelSelector() (kind.Selector, error) {
	selector, err := kind.ParseSelector(s.get("label-selector"))
	if err != nil {
		return nil, fmt.Errorf("parse --label-selector: %w", err)
	}
	if selector.Empty() {
		return nil, nil
	}
	return selector, nil
}

package podrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Options say what to run and what stands for the cluster around it.
type Options struct {
	// Template is the Deployment's pod template, see the function Template.
	Template corev1.PodTemplateSpec
	// Namespace of the Deployment.
	Namespace string
	// Name of the pod; empty means the container's name.
	Name string
	// Container to run; it may be empty if there is one only.
	Container string
	// Dir is a folder for this pod alone: volumes, kubeconfig, output.
	Dir string
	// Binary is the local program that takes the place of the container's
	// command or of the image's entrypoint. Arguments stay, and so does the
	// name the program is called by.
	Binary string
	// Source reads Secrets and ConfigMaps and requests tokens.
	Source Source
	// Server is the API server that the pod talks to.
	Server Server
	// Ports gives each containerPort its local port.
	Ports map[int32]int
	// Addresses replaces host:port of Services by local ones, wherever
	// arguments and variables have them.
	Addresses map[string]string
	// Flags set or add flags (without dashes), Env variables. Both are taken
	// as they are.
	Flags map[string]string
	Env   map[string]string
	// Output receives stdout and stderr; nil appends to Dir/output.log.
	Output io.Writer
	// Backoff is the pause before the first restart; it doubles up to 32
	// times that. Zero means 250 ms.
	Backoff time.Duration
	// ProbeEvery overrides period and initial delay of the readiness and the
	// startup probe, so that a test need not wait; zero leaves them as the
	// manifest says. Liveness keeps the manifest's patience.
	ProbeEvery time.Duration
}

// Server is a Kubernetes API server as a pod sees it.
type Server struct {
	URL string
	CA  []byte // PEM
}

// Source is what a kubelet asks of the API server. A missing object is an
// error for which apierrors.IsNotFound holds.
type Source interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Token(ctx context.Context, namespace, serviceAccount string, request TokenRequest) (Token, error)
}

// Watcher is a Source that can tell of changes, too.
type Watcher interface {
	// Watch calls notify after Secrets or ConfigMaps of the namespace may have
	// changed, until ctx ends.
	Watch(ctx context.Context, namespace string, notify func())
}

// TokenRequest asks for a token of a ServiceAccount.
type TokenRequest struct {
	Audience string // empty: the API server
	Seconds  int64
}

// Token is a ServiceAccount's token.
type Token struct {
	Value   string
	Expires time.Time
}

// Template finds a Deployment, StatefulSet or DaemonSet by name in a manifest
// of one or several documents, YAML or JSON, and returns its pod template.
func Template(manifest []byte, name string) (corev1.PodTemplateSpec, error) {
	var found []string
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		var object struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Spec struct {
				Template *corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return corev1.PodTemplateSpec{}, fmt.Errorf("the manifest has no workload %q, only: %s", name, strings.Join(found, ", "))
		}
		if err != nil {
			return corev1.PodTemplateSpec{}, fmt.Errorf("read the manifest: %w", err)
		}
		if !slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet"}, object.Kind) || object.Spec.Template == nil {
			continue
		}
		if object.Metadata.Name == name {
			return *object.Spec.Template, nil
		}
		found = append(found, object.Kind+" "+object.Metadata.Name)
	}
}

// pick returns the container to run and checks that the rest of the pod can
// be had here.
func (o *Options) pick() (*corev1.Container, error) {
	spec := &o.Template.Spec
	if len(spec.InitContainers) > 0 {
		return nil, fmt.Errorf("init container %s is not run here: podrun runs one container", spec.InitContainers[0].Name)
	}
	if o.Container == "" && len(spec.Containers) == 1 {
		return &spec.Containers[0], nil
	}
	var names []string
	for i := range spec.Containers {
		if spec.Containers[i].Name == o.Container {
			return &spec.Containers[i], nil
		}
		names = append(names, spec.Containers[i].Name)
	}
	return nil, fmt.Errorf("the pod has no container %q: name one of %s in Options.Container", o.Container, strings.Join(names, ", "))
}

// complete fills in defaults and checks what the caller must give.
func (o *Options) complete(container *corev1.Container) error {
	if o.Source == nil || o.Dir == "" || o.Namespace == "" {
		return errors.New("give Options.Source, Dir and Namespace")
	}
	for _, port := range container.Ports {
		if o.Ports[port.ContainerPort] == 0 {
			return fmt.Errorf("container port %d (%s) has no local port: choose a free one in Options.Ports", port.ContainerPort, port.Name)
		}
	}
	if o.Name == "" {
		o.Name = container.Name
	}
	if o.Template.UID == "" {
		o.Template.UID = uuid.NewUUID()
	}
	if o.Backoff <= 0 {
		o.Backoff = 250 * time.Millisecond
	}
	if o.Template.Spec.ServiceAccountName == "" {
		o.Template.Spec.ServiceAccountName = "default"
	}
	return nil
}

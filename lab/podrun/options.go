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

// Options has the pod and its environment.
type Options struct {
	// Template is the pod template of the Deployment. See the function Template.
	Template corev1.PodTemplateSpec
	// Namespace of the Deployment.
	Namespace string
	// Name of the pod. If empty, the name of the container.
	Name string
	// Container to run. If empty, the only one.
	Container string
	// Dir is the directory of this pod: volumes, kubeconfig, output.
	Dir string
	// Binary is the local binary that replaces the command of the container or the entrypoint of the image. Arguments
	// and argv[0] stay.
	Binary string
	// Source reads Secrets and ConfigMaps and requests tokens.
	Source Source
	// Server is the API server of the pod.
	Server Server
	// Ports maps each containerPort to a local port.
	Ports map[int32]int
	// Addresses replaces host:port of Services by local addresses in arguments and variables.
	Addresses map[string]string
	// Flags sets or adds flags (without dashes), Env variables. Both are not rewritten.
	Flags map[string]string
	Env   map[string]string
	// Output receives stdout and stderr. If nil, they are appended to Dir/output.log.
	Output io.Writer
	// Backoff is the pause before the first restart. It doubles up to 32 times the value. If zero, 250 ms.
	Backoff time.Duration
	// ProbeEvery overrides period and initial delay of the readiness and the startup probe for tests. If zero, the
	// manifest applies. The liveness probe is not changed.
	ProbeEvery time.Duration
}

// Server is a Kubernetes API server for a pod.
type Server struct {
	URL string
	CA  []byte // PEM
}

// Source is the API access of a kubelet. For a missing object it returns an error for which apierrors.IsNotFound is
// true.
type Source interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Token(ctx context.Context, namespace, serviceAccount string, request TokenRequest) (Token, error)
}

// Watcher is a Source that can watch.
type Watcher interface {
	// Watch calls notify after Secrets or ConfigMaps of the namespace may have changed, until ctx ends.
	Watch(ctx context.Context, namespace string, notify func())
}

// TokenRequest requests a token of a ServiceAccount.
type TokenRequest struct {
	Audience string // If empty, the API server
	Seconds  int64
}

// Token is a token of a ServiceAccount.
type Token struct {
	Value   string
	Expires time.Time
}

// Template returns the pod template of a Deployment, StatefulSet or DaemonSet by name in a manifest of one or several
// documents, YAML or JSON.
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

// pick returns the container to run and rejects unsupported pods.
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

// complete sets defaults and checks required options.
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

package upgrade

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

var (
	deployments = kind.Resource{Group: "apps", Version: "v1", Plural: "deployments", Kind: "Deployment"}
	jobs        = kind.Resource{Group: "batch", Version: "v1", Plural: "jobs", Kind: "Job"}
)

const (
	// annotation of the Deployment with the record, as JSON.
	annotation = kind.Prefix + "upgrade"
	// container whose image is changed.
	container = "agent"
)

// phaseJobRunning is a phase of records that the hub does not see: the Job has started and waits.
const phaseJobRunning = "JobRunning"

// record is the state of the last upgrade, in an annotation of the Deployment.
type record struct {
	ID      string          `json:"id"`
	Phase   string          `json:"phase"`
	Version string          `json:"version"`
	From    string          `json:"from"` // image
	To      string          `json:"to"`   // image
	Timeout metav1.Duration `json:"timeout"`
	Process uint64          `json:"process"` // incarnation of the agent that began
	Started metav1.Time     `json:"started"` // of Preparing, then of Upgrading
	Message string          `json:"message,omitempty"`
}

// in returns the record in another phase.
func (r record) in(phase, format string, args ...any) *record {
	r.Phase, r.Message = phase, fmt.Sprintf(format, args...)
	return &r
}

// deployment is the Deployment of the agent as it was read. It has only the fields that are needed: the types of
// k8s.io/api would add megabytes to the memory of every agent.
type deployment struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Paused   bool `json:"paused"`
		Template struct {
			Spec pod `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	index  int // of the container; -1 if there is not exactly one
	record record
}

type pod struct {
	Containers    []podContainer  `json:"containers"`
	RestartPolicy string          `json:"restartPolicy,omitempty"`
	Account       string          `json:"serviceAccountName,omitempty"`
	ServiceLinks  *bool           `json:"enableServiceLinks,omitempty"`
	Security      json.RawMessage `json:"securityContext,omitempty"`
	PullSecrets   json.RawMessage `json:"imagePullSecrets,omitempty"`
	NodeSelector  json.RawMessage `json:"nodeSelector,omitempty"`
	Tolerations   json.RawMessage `json:"tolerations,omitempty"`
	PriorityClass string          `json:"priorityClassName,omitempty"`
	RuntimeClass  json.RawMessage `json:"runtimeClassName,omitempty"`
}

type podContainer struct {
	Name       string          `json:"name"`
	Image      string          `json:"image"`
	PullPolicy string          `json:"imagePullPolicy,omitempty"`
	Command    []string        `json:"command,omitempty"`
	Args       []string        `json:"args,omitempty"`
	Resources  json.RawMessage `json:"resources,omitempty"`
	Security   json.RawMessage `json:"securityContext,omitempty"`
}

// job is a Job of batch/v1.
type job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              jobSpec `json:"spec"`
}

type jobSpec struct {
	BackoffLimit            int32       `json:"backoffLimit"`
	TTLSecondsAfterFinished int32       `json:"ttlSecondsAfterFinished"`
	ActiveDeadlineSeconds   int64       `json:"activeDeadlineSeconds"`
	Template                jobTemplate `json:"template"`
}

type jobTemplate struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              pod `json:"spec"`
}

func readDeployment(ctx context.Context, c *kube.Client, ref kind.Ref) (*deployment, error) {
	o, err := c.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, nil
	}
	return decodeDeployment(o.Raw())
}

func decodeDeployment(raw []byte) (*deployment, error) {
	d := &deployment{index: -1}
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, fmt.Errorf("decode Deployment: %w", err)
	}
	for i, one := range d.Spec.Template.Spec.Containers {
		if one.Name == container {
			d.index = i
		}
	}
	if text := d.Annotations[annotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &d.record); err != nil {
			return nil, fmt.Errorf("annotation %s of Deployment %s: %w: %w", annotation, d.Name, err, errUnreadable)
		}
	}
	return d, nil
}

// image returns the image of the agent's container.
func (d *deployment) image() string {
	if d.index < 0 {
		return ""
	}
	return d.Spec.Template.Spec.Containers[d.index].Image
}

// write stores a record and, if image is not empty, changes the image. It fails with a conflict if the Deployment has changed
// since it was read.
func (d *deployment) write(ctx context.Context, c *kube.Client, r record, image string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	operations := []kube.PatchOperation{{Op: "replace", Path: "/metadata/resourceVersion", Value: d.ResourceVersion}}
	if d.Annotations == nil {
		operations = append(operations, kube.PatchOperation{Op: "add", Path: "/metadata/annotations", Value: map[string]string{}})
	}
	operations = append(operations, kube.PatchOperation{Op: "add", Path: "/metadata/annotations/" + strings.ReplaceAll(annotation, "/", "~1"), Value: string(text)})
	if image != "" {
		path := fmt.Sprintf("/spec/template/spec/containers/%d/", d.index)
		operations = append(operations, kube.PatchOperation{Op: "test", Path: path + "name", Value: container},
			kube.PatchOperation{Op: "replace", Path: path + "image", Value: image})
	}
	_, err = c.JSONPatch(ctx, d.ref(), operations...)
	return err
}

func (d *deployment) ref() kind.Ref {
	return kind.Ref{Resource: deployments, Namespace: d.Namespace, Name: d.Name}
}

// managedBy returns which tool manages the Deployment and how to upgrade with it; empty: none.
func (d *deployment) managedBy() string {
	labels, annotations := d.Labels, d.Annotations
	var tool string
	switch {
	case len(d.OwnerReferences) > 0:
		owner := d.OwnerReferences[0]
		tool = fmt.Sprintf("%s %s manages it: change the version there", owner.Kind, owner.Name)
	case labels["olm.owner"] != "":
		tool = "Operator Lifecycle Manager manages it: change the version there"
	case labels["helm.toolkit.fluxcd.io/name"] != "":
		tool = fmt.Sprintf("Flux HelmRelease %s manages it: change the version there", labels["helm.toolkit.fluxcd.io/name"])
	case labels["kustomize.toolkit.fluxcd.io/name"] != "":
		tool = fmt.Sprintf("Flux Kustomization %s manages it: change the version there", labels["kustomize.toolkit.fluxcd.io/name"])
	case annotations["argocd.argoproj.io/tracking-id"] != "" || labels["argocd.argoproj.io/instance"] != "":
		app, _, _ := strings.Cut(annotations["argocd.argoproj.io/tracking-id"], ":")
		tool = fmt.Sprintf("Argo CD Application %s manages it: change the version in its source", cmp.Or(app, labels["argocd.argoproj.io/instance"]))
	case annotations["meta.helm.sh/release-name"] != "" || labels["app.kubernetes.io/managed-by"] == "Helm":
		tool = strings.TrimSpace("Helm manages it: run helm upgrade with the new image.tag or image.digest for release " +
			cmp.Or(annotations["meta.helm.sh/release-name"], labels["app.kubernetes.io/instance"]))
	case labels["app.kubernetes.io/managed-by"] != "":
		tool = labels["app.kubernetes.io/managed-by"] + " manages it: change the version there"
	case labels["app.kubernetes.io/instance"] != "":
		tool = fmt.Sprintf("Argo CD Application %s may manage it (label app.kubernetes.io/instance): change the version there, or remove the label",
			labels["app.kubernetes.io/instance"])
	default:
		return ""
	}
	return fmt.Sprintf("Deployment %s is not upgraded by the hub, because %s", d.Name, tool)
}

// jobTime is added to the timeout of an upgrade: until then the Job has ended, or cannot succeed.
const jobTime = time.Hour

// job returns the Job that restores the image. It has the image that runs now and a ServiceAccount that can only read and
// change the Deployment.
func (d *deployment) job() (kind.Ref, job) {
	sum := sha256.Sum256([]byte(string(d.UID) + " " + d.record.ID))
	name := d.Name[:min(len(d.Name), 40)] + "-restore-" + hex.EncodeToString(sum[:4])
	labels := map[string]string{"app.kubernetes.io/name": d.Name[:min(len(d.Name), 50)] + "-restore", "app.kubernetes.io/part-of": "argocd-agent"}
	of, own := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[d.index]
	return kind.Ref{Resource: jobs, Namespace: d.Namespace, Name: name}, job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: d.Namespace, Labels: labels},
		Spec: jobSpec{
			BackoffLimit: 10, TTLSecondsAfterFinished: 86400,
			ActiveDeadlineSeconds: int64((d.record.Timeout.Duration + jobTime) / time.Second),
			Template: jobTemplate{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod{
				RestartPolicy: "OnFailure", Account: RestoreAccount(d.Name), ServiceLinks: new(false),
				Security: of.Security, PullSecrets: of.PullSecrets, NodeSelector: of.NodeSelector, Tolerations: of.Tolerations,
				PriorityClass: of.PriorityClass, RuntimeClass: of.RuntimeClass,
				Containers: []podContainer{{
					Name: "restore", Image: d.record.From, PullPolicy: own.PullPolicy, Command: own.Command,
					Args:      []string{"restore-image", "--namespace", d.Namespace, "--deployment", d.Name, "--id", d.record.ID},
					Resources: own.Resources, Security: own.Security,
				}},
			}},
		},
	}
}

// RestoreAccount returns the ServiceAccount of Jobs that restore the image of a Deployment.
func RestoreAccount(deployment string) string { return deployment + "-restore" }

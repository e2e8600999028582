package fleet

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// AgentResource is the resource of Agents.
var AgentResource = kind.Resource{Group: v1alpha1.Group, Version: v1alpha1.Version, Plural: v1alpha1.Resource, Kind: v1alpha1.Kind}

// agentRecord is an Agent as last seen.
type agentRecord struct {
	v1alpha1.Agent
	revision uint64
}

// Registration is the active registration of an agent.
type Registration struct {
	reconcile.Register
	secret  string // name of the cluster Secret
	confirm string // ID that a user confirmed
	shared  bool   // the agent may use the hub's repo-server and Redis
}

// hasNamespace reports whether the agent owns a namespace of Applications.
func (reg Registration) hasNamespace() bool {
	return reg.Agent.Mode != kind.Standby && (reg.Agent.Mapping == kind.ByNamespace || reg.Agent.Mode == kind.Autonomous)
}

func readAgent(o *kind.Object) (agentRecord, error) {
	rec := agentRecord{revision: kube.ParseResourceVersion(o.ResourceVersion())}
	if err := json.Unmarshal(o.Raw(), &rec.Agent); err != nil {
		return agentRecord{}, fmt.Errorf("read Agent %s: %w", o.Name(), err)
	}
	return rec, nil
}

func retired(a v1alpha1.Agent) bool { return a.Annotations[v1alpha1.RetireAnnotation] != "" }

// wasInvalid reports whether the status says that the Agent is invalid.
func (rec agentRecord) wasInvalid() bool {
	c := meta.FindStatusCondition(rec.Status.Conditions, v1alpha1.ConditionRegistered)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reasonInvalid
}

func (rec agentRecord) namespaceOnHub() string {
	if rec.Spec.Namespace != "" {
		return rec.Spec.Namespace
	}
	return rec.Name
}

// confirmedCluster returns the cluster that a user confirmed as the agent's.
func (rec agentRecord) confirmedCluster() (uid string, ok bool) {
	return strings.CutPrefix(rec.Annotations[v1alpha1.ConfirmAnnotation], v1alpha1.ConfirmCluster)
}

// Maximum values of Spec.Limits, as in the CRD.
const (
	maxItems     = 1_000_000
	maxMebibytes = 64 << 10
)

// registration validates the Agent and returns its registration. It does not rely on the validation by the CRD.
func (rec agentRecord) registration(mapping kind.Mapping, limits kind.Limits) (Registration, error) {
	var reg Registration
	if err := kind.ValidateAgentName(rec.Name); err != nil {
		return reg, err
	}
	reg.Agent = kind.Agent{Name: rec.Name, Mode: kind.Mode(rec.Spec.Mode), Mapping: mapping, HubNamespace: rec.namespaceOnHub()}
	switch reg.Agent.Mode {
	case "", kind.Managed, kind.Autonomous:
	case kind.Standby: // a hub: it has no Applications, cluster or settings
		reg.Agent = kind.Agent{Name: rec.Name, Mode: kind.Standby}
		reg.KnownCluster = rec.Status.ClusterUID
		reg.confirm = rec.Annotations[v1alpha1.ConfirmAnnotation]
		if uid, ok := rec.confirmedCluster(); ok {
			reg.KnownCluster = uid
		}
		return reg, nil
	default:
		return reg, fmt.Errorf("spec.mode is %.40q; it must be managed, autonomous or standby", rec.Spec.Mode)
	}
	switch own := kind.Mapping(rec.Spec.Mapping); own {
	case "":
	case kind.ByNamespace, kind.ByDestination:
		reg.Agent.Mapping = own
	default:
		return reg, fmt.Errorf("spec.mapping is %.40q; it must be namespace or destination", rec.Spec.Mapping)
	}
	if wrong := validation.IsDNS1123Label(reg.Agent.HubNamespace); len(wrong) > 0 {
		return reg, fmt.Errorf("spec.namespace is %.80q, which cannot be a namespace", reg.Agent.HubNamespace)
	}
	own := rec.Spec.Limits
	if own.Items < 0 || own.Items > maxItems || own.Mebibytes < 0 || own.Mebibytes > maxMebibytes {
		return reg, fmt.Errorf("spec.limits has %d items and %d mebibytes; the maximum is %d and %d", own.Items, own.Mebibytes, maxItems, maxMebibytes)
	}
	reg.Agent.Limits = kind.Limits{Items: int(own.Items), Bytes: int(own.Mebibytes << 20)}.Or(limits)
	reg.shared = rec.Spec.Shared
	reg.Agent.ExcludedScopes = excluded(rec.Spec.Kinds)
	switch rec.Spec.ChildApplications {
	case "", v1alpha1.ChildApplicationsNone:
	case v1alpha1.ChildApplicationsReadOnly:
		reg.Agent.Children = reg.Agent.Mode == kind.Managed
	default:
		return reg, fmt.Errorf("spec.childApplications is %.40q; it must be None or ReadOnly", rec.Spec.ChildApplications)
	}
	reg.Agent.Allow = kind.Allow{
		Roles:         slices.Contains(rec.Spec.Allow, v1alpha1.AllowRoles),
		Notifications: slices.Contains(rec.Spec.Allow, v1alpha1.AllowNotifications),
	}
	reg.KnownCluster = rec.Status.ClusterUID
	if s := rec.Status.Store; s != nil {
		reg.KnownStore, reg.StoreUntrusted = engine.Store{UID: s.UID, Revision: s.Revision, Mark: engine.HistoryMark{Record: s.MarkRecord, Number: s.Mark}}, s.Untrusted
	}
	if uid, ok := rec.confirmedCluster(); ok && uid != reg.KnownCluster {
		reg.KnownCluster, reg.KnownStore, reg.StoreUntrusted = uid, engine.Store{}, false // its history does not apply
	} else if !ok {
		reg.confirm = rec.Annotations[v1alpha1.ConfirmAnnotation]
	}
	return reg, nil
}

// excluded returns the scopes of the kinds that are not given. If kinds is empty, nothing is excluded.
func excluded(kinds []string) string {
	var out []string
	for _, k := range kind.All() {
		if len(kinds) > 0 && !slices.Contains(kinds, k.Traits().Name) {
			out = append(out, k.Scope())
		}
	}
	if out == nil {
		return ""
	}
	return "," + strings.Join(out, ",") + ","
}

// Labels and annotations of cluster Secrets.
const (
	AgentLabel          = kind.Prefix + "agent-name"
	selfRegisteredLabel = v1alpha1.SelfRegisteredLabel
	derivedAnnotation   = kind.Prefix + "derived" // hash of the values that come from the Agent
	backupAnnotation    = kind.Prefix + "agent"   // backup of a deleted Agent
	createdByAnnotation = kind.Prefix + "made-by" // set if the principal created the Secret

	// Registration in cluster Secrets of other argocd-agent implementations.
	modeAnnotation      = kind.Prefix + "mode"
	namespaceAnnotation = kind.Prefix + "hub-namespace"
	clusterAnnotation   = kind.Prefix + "cluster-uid"
	storeAnnotation     = kind.Prefix + "seen-store"
)

// clusterSecret is an agent's cluster Secret as last seen.
type clusterSecret struct {
	name, agent string
	revision    uint64
	labels      map[string]string
	annotations map[string]string
	cluster     string // data.name
	server      string // data.server
	project     string // data.project
	config      string // hash of data.config; empty if there is none
}

func defaultSecretName(agent string) string { return "cluster-" + agent }

func readSecret(o *kind.Object) clusterSecret {
	data, _ := rawjson.StringMap(o.Get("data"))
	text := func(key string) string {
		b, _ := base64.StdEncoding.DecodeString(data[key])
		return string(b)
	}
	s := clusterSecret{name: o.Name(), agent: o.Label(AgentLabel), revision: kube.ParseResourceVersion(o.ResourceVersion()),
		labels: o.Labels(), annotations: o.Annotations(), cluster: text("name"), server: text("server"), project: text("project")}
	delete(s.annotations, "kubectl.kubernetes.io/last-applied-configuration") // contains the Secret
	if config := text("config"); config != "" {
		s.config = hashOf([]byte(config))
	}
	return s
}

// derived reports whether the principal manages the Secret.
func (s clusterSecret) derived() bool { return s.annotations[derivedAnnotation] != "" }

// claimableBy reports whether the Secret belongs to an agent, even if its label was removed, or was released by one. The
// default name of an agent's Secret is not sufficient.
func (s clusterSecret) claimableBy(agent string) bool {
	return s.agent == agent || s.derived() && (s.agent == "" || s.cluster == agent)
}

// createdByPrincipal reports whether the principal created the Secret and may delete it.
func (s clusterSecret) createdByPrincipal() bool {
	return s.annotations[createdByAnnotation] != "" || s.labels[selfRegisteredLabel] == "true"
}

// toAgent returns the Agent that is described by a Secret without Agent.
func (s clusterSecret) toAgent(namespace string) (v1alpha1.Agent, error) {
	var a v1alpha1.Agent
	if err := kind.ValidateAgentName(s.agent); err != nil {
		return a, err
	}
	if backup := s.annotations[backupAnnotation]; backup != "" {
		var was v1alpha1.Agent
		if err := json.Unmarshal([]byte(backup), &was); err != nil {
			return a, fmt.Errorf("annotation %s: %w", backupAnnotation, err)
		}
		a.Spec, a.Status.ClusterUID, a.Status.Store = was.Spec, was.Status.ClusterUID, was.Status.Store
		a.Name, a.Namespace = s.agent, namespace
		return a, nil
	}
	a.Name, a.Namespace = s.agent, namespace
	switch mode := kind.Mode(s.annotations[modeAnnotation]); mode {
	case "", kind.Managed, kind.Autonomous:
		a.Spec.Mode = string(mode)
	default:
		return a, fmt.Errorf("annotation %s is %.40q; it must be managed or autonomous", modeAnnotation, mode)
	}
	if own := s.annotations[namespaceAnnotation]; own != "" && own != s.agent {
		if wrong := validation.IsDNS1123Label(own); len(wrong) > 0 {
			return a, fmt.Errorf("annotation %s is %.80q, which cannot be a namespace", namespaceAnnotation, own)
		}
		a.Spec.Namespace = own
	}
	if s.labels[selfRegisteredLabel] == "true" {
		a.Labels = map[string]string{v1alpha1.SelfRegisteredLabel: "true"}
	}
	a.Status.ClusterUID, a.Status.Store = s.annotations[clusterAnnotation], parseStore(s.annotations[storeAnnotation])
	return a, nil
}

func parseStore(s string) *v1alpha1.Store {
	uid, rev, ok := strings.Cut(s, "/")
	n, err := strconv.ParseUint(rev, 10, 64)
	if !ok || err != nil || uid == "" {
		return nil
	}
	return &v1alpha1.Store{UID: uid, Revision: n}
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return fmt.Sprintf("%x", sum[:12])
}

func hasFinalizer(rec agentRecord) bool { return slices.Contains(rec.Finalizers, v1alpha1.Finalizer) }

package principal

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

// This file reads Agents and cluster Secrets; nothing in it touches the world.

var agentResource = kind.Resource{Group: v1alpha1.Group, Version: v1alpha1.Version, Plural: v1alpha1.Resource, Kind: v1alpha1.Kind}

// agentRecord is an Agent object as it was last seen.
type agentRecord struct {
	v1alpha1.Agent
	revision uint64
}

// registration is what is in force for an agent.
type registration struct {
	reconcile.Register
	secret  string // its cluster Secret
	confirm string // what a person has confirmed
	shared  bool   // it may use the hub's repo-server and Redis
}

// hasNamespace reports whether an agent's Applications are those of a namespace.
func (reg registration) hasNamespace() bool {
	return reg.Agent.Mapping == kind.ByNamespace || reg.Agent.Mode == kind.Autonomous
}

func readAgent(o *kind.Object) (agentRecord, error) {
	rec := agentRecord{revision: kube.ParseResourceVersion(o.ResourceVersion())}
	if err := json.Unmarshal(o.Raw(), &rec.Agent); err != nil {
		return agentRecord{}, fmt.Errorf("read Agent %s: %w", o.Name(), err)
	}
	return rec, nil
}

func (rec agentRecord) retired() bool { return rec.Annotations[v1alpha1.RetireAnnotation] != "" }

// wasRefused tells that what is declared was not in force when somebody last
// looked.
func (rec agentRecord) wasRefused() bool {
	c := meta.FindStatusCondition(rec.Status.Conditions, v1alpha1.ConditionRegistered)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reasonInvalid
}

func (rec agentRecord) namespaceOnHub() string {
	if rec.Spec.Namespace != "" {
		return rec.Spec.Namespace
	}
	return rec.Name
}

// confirmedCluster is the cluster that a person has said to be the agent's now.
func (rec agentRecord) confirmedCluster() (uid string, ok bool) {
	return strings.CutPrefix(rec.Annotations[v1alpha1.ConfirmAnnotation], v1alpha1.ConfirmCluster)
}

// registration is what an Agent declares, as the node has to hear it. The API
// server has checked all of it, if it has our definition; this does not rely on
// that.
func (rec agentRecord) registration(mapping kind.Mapping) (registration, error) {
	var reg registration
	if err := kind.ValidateAgentName(rec.Name); err != nil {
		return reg, err
	}
	reg.Agent = kind.Agent{Name: rec.Name, Mode: kind.Mode(rec.Spec.Mode), Mapping: mapping, HubNamespace: rec.namespaceOnHub()}
	switch reg.Agent.Mode {
	case "", kind.Managed, kind.Autonomous:
	default:
		return reg, fmt.Errorf("spec.mode is %.40q; it must be managed or autonomous", rec.Spec.Mode)
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
	reg.shared = rec.Spec.Shared
	reg.Agent.ExcludedScopes = excluded(rec.Spec.Kinds)
	reg.KnownCluster = rec.Status.ClusterUID
	if s := rec.Status.Store; s != nil {
		reg.KnownStore, reg.StoreUntrusted = engine.Store{UID: s.UID, Revision: s.Revision}, s.Untrusted
	}
	if uid, ok := rec.confirmedCluster(); ok && uid != reg.KnownCluster {
		reg.KnownCluster, reg.KnownStore, reg.StoreUntrusted = uid, engine.Store{}, false // whose history is another
	} else if !ok {
		reg.confirm = rec.Annotations[v1alpha1.ConfirmAnnotation]
	}
	return reg, nil
}

// excluded lists the scopes of the kinds that are not among those given; of none,
// all are meant.
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

// Marks of a cluster Secret.
const (
	agentLabel          = kind.Prefix + "agent-name"
	selfRegisteredLabel = v1alpha1.SelfRegisteredLabel
	derivedAnnotation   = kind.Prefix + "derived" // what of it comes from the Agent, as a hash
	backupAnnotation    = kind.Prefix + "agent"   // what the Agent said that was there
	createdByAnnotation = kind.Prefix + "made-by" // the principal, and not somebody else

	// Annotations of a cluster Secret that were an agent's registration before
	// there were Agents.
	modeAnnotation      = kind.Prefix + "mode"
	namespaceAnnotation = kind.Prefix + "hub-namespace"
	clusterAnnotation   = kind.Prefix + "cluster-uid"
	storeAnnotation     = kind.Prefix + "seen-store"
)

// clusterSecret is what is kept of an agent's cluster Secret.
type clusterSecret struct {
	name, agent string
	revision    uint64
	labels      map[string]string
	annotations map[string]string
	cluster     string // its data: name
	server      string // and server
	project     string // and project: the AppProject that it belongs to
	config      string // and a hash of config; empty: there is none
}

func defaultSecretName(agent string) string { return "cluster-" + agent }

func readSecret(o *kind.Object) clusterSecret {
	data, _ := rawjson.StringMap(o.Get("data"))
	text := func(key string) string {
		b, _ := base64.StdEncoding.DecodeString(data[key])
		return string(b)
	}
	s := clusterSecret{name: o.Name(), agent: o.Label(agentLabel), revision: kube.ParseResourceVersion(o.ResourceVersion()),
		labels: o.Labels(), annotations: o.Annotations(), cluster: text("name"), server: text("server"), project: text("project")}
	delete(s.annotations, "kubectl.kubernetes.io/last-applied-configuration") // as large as the Secret, and with its content
	if config := text("config"); config != "" {
		s.config = hashOf([]byte(config))
	}
	return s
}

// derived tells that the principal has taken charge of a Secret.
func (s clusterSecret) derived() bool { return s.annotations[derivedAnnotation] != "" }

// claimableBy tells that a Secret is an agent's, whatever its label says by now, or was
// one's and is nobody's any more. That it has an agent's usual name is not enough:
// another agent's may have it.
func (s clusterSecret) claimableBy(agent string) bool {
	return s.agent == agent || s.derived() && (s.agent == "" || s.cluster == agent)
}

// createdByPrincipal tells that the principal has made a Secret, and may delete it.
func (s clusterSecret) createdByPrincipal() bool {
	return s.annotations[createdByAnnotation] != "" || s.labels[selfRegisteredLabel] == "true"
}

// toAgent is the Agent that a Secret of the time before Agents, or of another
// program, comes to.
func (s clusterSecret) toAgent(namespace string) (v1alpha1.Agent, error) {
	var a v1alpha1.Agent
	if err := kind.ValidateAgentName(s.agent); err != nil {
		return a, err
	}
	if said := s.annotations[backupAnnotation]; said != "" {
		var was v1alpha1.Agent
		if err := json.Unmarshal([]byte(said), &was); err != nil {
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

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Where AgentPolicies are served.
const (
	PolicyResource = "agentpolicies"
	PolicyKind     = "AgentPolicy"
)

// AgentPolicy limits what the hub can do on a workload cluster. It lives in the agent's namespace on that cluster. The hub
// has no way to write it. If several exist, a request must be allowed by each of them.
type AgentPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec PolicySpec `json:"spec,omitzero"`
}

// PolicyList is a list of AgentPolicies.
type PolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []AgentPolicy `json:"items"`
}

// PolicySpec has one field for each limit. A list that is not set does not limit. An empty list allows nothing. Patterns are
// globs as in AppProjects.
type PolicySpec struct {
	// Projects are names of AppProjects that the hub's Applications can be in.
	Projects []string `json:"projects,omitempty"`
	// SourceRepos are repository URLs that the hub's Applications can deploy from.
	SourceRepos []string `json:"sourceRepos,omitempty"`
	// DestinationNamespaces are namespaces that the hub's Applications can deploy to.
	DestinationNamespaces []string `json:"destinationNamespaces,omitempty"`
	// NamespacedKinds and ClusterKinds are what the hub's Applications can deploy.
	NamespacedKinds []GroupKind `json:"namespacedKinds,omitempty"`
	ClusterKinds    []GroupKind `json:"clusterKinds,omitempty"`
	// ProtectedNamespaces are namespaces that the hub's Applications cannot deploy to, in addition to the namespaces of
	// Argo CD and of the agent.
	ProtectedNamespaces []string `json:"protectedNamespaces,omitempty"`
	// ArgoCDKinds are kinds of group argoproj.io that the hub's Applications can deploy to the namespace of Argo CD:
	// Application, ApplicationSet, AppProject. If unset, none.
	ArgoCDKinds []string `json:"argoCDKinds,omitempty"`

	Operations *OperationPolicy `json:"operations,omitempty"`
	Deletions  *DeletionPolicy  `json:"deletions,omitempty"`
	LiveAccess *LiveAccess      `json:"liveAccess,omitempty"`
	// Adoption is always or never. Never means that an object which the agent did not create is not taken over. The hub
	// cannot override it.
	Adoption string `json:"adoption,omitempty"`
	// Freeze stops all changes from the hub for a time.
	Freeze *Freeze `json:"freeze,omitempty"`
	// Upgrade lets the hub upgrade the agent. If no AgentPolicy has it, the hub cannot.
	Upgrade *UpgradePolicy `json:"upgrade,omitempty"`
	// Rules are CEL expressions that must be true for each Application and AppProject from the hub.
	Rules []Rule `json:"rules,omitempty"`
}

// GroupKind names a kind. Both fields are globs. The core group is "".
type GroupKind struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
}

// OperationPolicy is what an operation (sync, rollback) from the hub can contain. A revision and a selection of resources
// are always allowed.
type OperationPolicy struct {
	// Allow has the names of further parts: dryRun, force, manifests, prune, replace, retry, rollback, source. If unset,
	// a managed agent allows all, an autonomous one dryRun, prune, retry and rollback.
	Allow []string `json:"allow,omitempty"`
	// SyncOptions are globs of sync options, such as CreateNamespace=*. If unset, a managed agent allows all, an autonomous
	// one those of the Application's own sync policy. Options that force or replace also need that part in Allow.
	SyncOptions []string `json:"syncOptions,omitempty"`
}

// DeletionPolicy limits how many Applications the hub can delete, with or without their resources. The others wait until
// a user of this cluster raises Max, or Window is over. The agent remembers them across restarts.
type DeletionPolicy struct {
	// Max is the number of Applications. More than 1000 counts as 1000.
	Max int `json:"max"`
	// Window is the time in which Max deletions are allowed. If unset, one hour.
	Window metav1.Duration `json:"window,omitzero"`
}

// LiveAccess is what users of the hub can do with live resources.
type LiveAccess struct {
	Read    bool `json:"read"`
	Write   bool `json:"write"`
	Exec    bool `json:"exec"`
	Secrets bool `json:"secrets"`
}

// Freeze stops all changes from the hub until a time.
type Freeze struct {
	Until  metav1.Time `json:"until"`
	Reason string      `json:"reason,omitempty"`
}

// UpgradePolicy is what the hub can make the agent run.
type UpgradePolicy struct {
	// Repository of the image, without tag. The agent runs no image of another repository.
	Repository string `json:"repository"`
	// Versions are globs, such as v0.3.*. If unset, any version.
	Versions []string `json:"versions,omitempty"`
	// Digests of images. If set, a request must have one of them. If unset, a request with a digest needs Downgrade
	// and no Versions, because it can name any version.
	Digests []string `json:"digests,omitempty"`
	// Downgrade allows versions that are older than the running one.
	Downgrade bool `json:"downgrade,omitempty"`
}

// Rule is a CEL expression over an object from the hub. Variables: object, kind (Application or AppProject).
type Rule struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
	// Message is shown on the hub if the expression is false.
	Message string `json:"message,omitempty"`
}

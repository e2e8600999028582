// Package v1alpha1 has the custom resource Agent: one object for each agent, in the namespace of Argo CD on the hub.
//
// The hub decides by it what an agent is and may do; what an agent claims counts for nothing against it. It can be
// declared in Git: whatever the principal finds out goes into the status. The definition that a cluster needs is in
// install/crds; a test keeps the two the same.
package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Where the resource is served.
const (
	Group    = "argocd-agent.argoproj-labs.io"
	Version  = "v1alpha1"
	Resource = "agents"
	Kind     = "Agent"
)

// Agent is one workload cluster that is run from the hub. Its name is the agent's name, as in its certificate.
type Agent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   Spec   `json:"spec,omitzero"`
	Status Status `json:"status,omitzero"`
}

// List is a list of agents.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Agent `json:"items"`
}

// Spec is what somebody on the hub wants an agent to be. Nothing in it is needed: an empty one is an agent whose mode is
// the one it first connects with.
type Spec struct {
	// Mode is managed (the hub owns the configuration) or autonomous (the agent does). Empty: what the agent says when it
	// first connects is recorded here.
	Mode string `json:"mode,omitempty"`
	// Namespace on the hub that is the agent's own. Empty: the agent's name.
	Namespace string `json:"namespace,omitempty"`
	// Mapping is namespace or destination. Empty: what the principal is set to.
	Mapping string `json:"mapping,omitempty"`
	// Cluster is what the agent's cluster Secret carries beside what the principal puts there.
	Cluster ClusterSecret `json:"cluster,omitzero"`
	// Kinds that are exchanged with this agent, of: applications, appprojects, repositories, gpgkeys. Empty: all. What is
	// left out leaves a managed cluster, and is refused from an autonomous one.
	Kinds []string `json:"kinds,omitempty"`
	// Shared lets the agent use the hub's repo-server and Redis, so that its cluster needs none of its own.
	Shared bool `json:"shared,omitempty"`
	// Suspended agents are disconnected and stay so. Nothing is deleted.
	Suspended bool `json:"suspended,omitempty"`
}

// ClusterSecret is metadata of a cluster Secret, for the cluster generators of ApplicationSets.
type ClusterSecret struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Status is what the principal knows of an agent.
type Status struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Connected reports whether there is a session; Since, from when on that has been so.
	Connected bool         `json:"connected"`
	Since     *metav1.Time `json:"since,omitempty"`
	// Principal is the replica that holds the session, or held the last one.
	Principal string `json:"principal,omitempty"`
	// Session is which session that is. Of two principals that report on an agent, the one with the newer is right.
	Session *Session `json:"session,omitempty"`
	// ClusterUID is the UID of namespace kube-system of the agent's cluster. Another cluster under this name is refused.
	ClusterUID string `json:"clusterUID,omitempty"`
	// Store is how far the agent's API server has been seen: one that went back is not believed.
	Store    *Store `json:"store,omitempty"`
	Version  string `json:"version,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	// Applications of the agent; Diverged is how many items of all kinds differ between both sides.
	Applications int64 `json:"applications"`
	Diverged     int64 `json:"diverged"`
	// OldestUnacked is since when the oldest change waits to be confirmed by the other side.
	OldestUnacked *metav1.Time `json:"oldestUnacked,omitempty"`
	// LastConfirmed is when both sides were last known to be equal.
	LastConfirmed *metav1.Time `json:"lastConfirmed,omitempty"`
	// ClockSkewSeconds is by how much the agent's clock was ahead of the hub's when it connected, in whole seconds and with
	// the time that its greeting took; negative: behind.
	ClockSkewSeconds *int64 `json:"clockSkewSeconds,omitempty"`
	// Certificate that the agent last connected with.
	Certificate *Certificate `json:"certificate,omitempty"`
	// Holds wait for a confirmation. At most MaxHolds.
	Holds []Hold `json:"holds,omitempty"`
	// Pending counts what waits in the open session. If nil, the agent is not connected or not compared yet.
	Pending *Pending `json:"pending,omitempty"`
	// Conditions: Connected, Registered, Synced, Held, Writable.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Session names a session of an agent: a later start of the agent is newer, and so is a later attempt of one start.
type Session struct {
	Incarnation uint64 `json:"incarnation"`
	Attempt     uint64 `json:"attempt"`
}

// Store identifies an API server's storage and a moment of it.
type Store struct {
	UID      string `json:"uid"`
	Revision uint64 `json:"revision"`
	// Untrusted stores have gone back behind this moment, or are others, and nobody has accepted that yet.
	Untrusted bool `json:"untrusted"`
}

// Certificate is a client certificate in short.
type Certificate struct {
	Fingerprint string       `json:"fingerprint"` // SHA-256, upper-case hex
	Expires     *metav1.Time `json:"expires,omitempty"`
}

// MaxHolds limits Status.Holds.
const MaxHolds = 16

// Hold is something that waits for a confirmation: deletions of a scope, a restored API server or another cluster.
type Hold struct {
	// ID confirms the hold as the value of ConfirmAnnotation. If empty, the hold cannot be confirmed: the agent sent an
	// invalid ID.
	ID string `json:"id,omitempty"`
	// Scope whose deletions are held. If empty, the hold is about the agent's API server or cluster.
	Scope string `json:"scope,omitempty"`
	// Count of held deletions in the scope.
	Count int64 `json:"count,omitempty"`
	// Reason may contain text from the agent. That text is quoted.
	Reason string `json:"reason"`
	// Since is when the principal first reported the hold.
	Since *metav1.Time `json:"since,omitempty"`
	// FleetHold is the ID of the hold on many agents that includes this one.
	FleetHold string `json:"fleetHold,omitempty"`
}

// Pending counts what waits in a session. The sum of its fields is Status.Diverged.
type Pending struct {
	// Deliveries are new and changed items that the agent has not acknowledged.
	Deliveries int64 `json:"deliveries"`
	// Deletions are deleted items that the agent has not acknowledged.
	Deletions int64 `json:"deletions"`
	// Commands that the agent has not acknowledged.
	Commands int64 `json:"commands"`
	// Writes are items of the agent that the hub has not stored yet.
	Writes int64 `json:"writes"`
	// Rejected items are not accepted by the API server or policy of the replica.
	Rejected int64 `json:"rejected"`
}

// Types of conditions.
const (
	ConditionRegistered = "Registered" // what is declared is in force
	ConditionConnected  = "Connected"
	ConditionSynced     = "Synced"   // nothing differs
	ConditionHeld       = "Held"     // deletions or commands wait for a confirmation
	ConditionWritable   = "Writable" // the agent's API server takes writes; absent: nothing else was ever heard
)

// Annotations that ask the principal for something.
const (
	// ConfirmAnnotation confirms what is held: its value is the ID that the log and the condition name. With the value
	// ConfirmCluster and a UID it says that this cluster now has the agent's name.
	ConfirmAnnotation = Group + "/confirm"
	// RetireAnnotation says that the cluster is gone for good: deletions that wait for it are let go.
	RetireAnnotation = Group + "/retire"
)

// IssuedAnnotation lists the certificates that the principal has issued to an agent and that are still good, as
// fingerprint/expiry, separated by spaces. An agent that stays connected has newer ones than the status shows.
const IssuedAnnotation = Group + "/issued-certificates"

// ConfirmCluster is how a confirmation of another cluster begins.
const ConfirmCluster = "cluster-"

// FleetHold is the ConfigMap in which the principals record that removals on many agents are held for one confirmation:
// ConfirmAnnotation on it, with the ID as its value. Without an ID nothing is held.
const FleetHold = "argocd-agent-fleet-hold"

// Keys of that ConfigMap.
const (
	FleetHoldID       = "id"
	FleetHoldSince    = "since"    // RFC 3339
	FleetHoldAgents   = "agents"   // how many would lose items
	FleetHoldCompared = "compared" // ... of how many
	FleetHoldItems    = "items"    // how many they would lose
	FleetHoldSample   = "sample"   // some of the items, one a line
	FleetHoldSettings = "settings" // identifies the settings of the principal under which it came about
)

// Finalizer keeps an Agent that is being deleted until its certificate is revoked and what was derived from it is gone.
const Finalizer = Group + "/agent"

// SelfRegisteredLabel marks, with the value true, an Agent that nobody has declared: its first connection did.
const SelfRegisteredLabel = Group + "/self-registered-cluster"

// Kinds that can be exchanged with an agent.
const (
	KindApplications = "applications"
	KindAppProjects  = "appprojects"
	KindRepositories = "repositories"
	KindGPGKeys      = "gpgkeys"
)

// Package v1alpha1 defines the custom resource Agent: one object per agent in the Argo CD namespace on the hub.
//
// The Agent decides what the hub accepts from an agent. Users can declare it in Git, because the principal writes only
// the status. The CRD is in install/crds. A test compares it with these types.
package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	Group    = "argocd-agent.argoproj-labs.io"
	Version  = "v1alpha1"
	Resource = "agents"
	Kind     = "Agent"
)

// Agent is one workload cluster of the hub. Its name is the agent name in the certificate.
type Agent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   Spec   `json:"spec,omitzero"`
	Status Status `json:"status,omitzero"`
}

// List is a list of Agents.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Agent `json:"items"`
}

// Spec is the registration of an agent. All fields are optional.
type Spec struct {
	// Mode is managed (the hub owns the configuration), autonomous (the agent does) or standby (a standby hub, which gets
	// every object of this hub). If empty, the agent is refused. If registration is not required, the principal records the
	// mode of the first connection, which cannot be standby.
	Mode string `json:"mode,omitempty"`
	// Namespace of the agent on the hub. If empty, the name of the agent.
	Namespace string `json:"namespace,omitempty"`
	// Mapping is namespace or destination. If empty, the setting of the principal.
	Mapping string `json:"mapping,omitempty"`
	// Cluster is additional metadata of the cluster Secret.
	Cluster ClusterSecret `json:"cluster,omitzero"`
	// Kinds to sync: applications, appprojects, repositories, gpgkeys, settings. If empty, all. Replicas of other kinds are deleted
	// from a managed cluster, and items of other kinds are not accepted from an autonomous one.
	Kinds []string `json:"kinds,omitempty"`
	// ChildApplications is ReadOnly if the hub shows the Applications that managed Applications deploy on the cluster, or
	// None. If empty, None. It has no meaning for an autonomous agent.
	ChildApplications string `json:"childApplications,omitempty"`
	// Allow is what an autonomous agent can set on the hub in addition: roles of AppProjects, notifications
	// (subscriptions). If empty, nothing: the hub removes them from its replicas.
	Allow []string `json:"allow,omitempty"`
	// Owners are the groups of the teams that own the cluster. They give no rights: see `argocd-agentctl agent access`.
	Owners []string `json:"owners,omitempty"`
	// Shared lets the agent use the repo-server and Redis of the hub.
	Shared bool `json:"shared,omitempty"`
	// Limits bound what the hub stores for the agent.
	Limits Limits `json:"limits,omitzero"`
	// DisconnectedAfter is how long the agent may be disconnected before its Applications show that, such as 5m. 0s means
	// never. If empty, the setting of the principal.
	DisconnectedAfter string `json:"disconnectedAfter,omitempty"`
	// Suspended agents are disconnected and refused. Nothing is deleted.
	Suspended bool `json:"suspended,omitempty"`
	// Upgrade is the version that the agent should run. `argocd-agentctl upgrade` sets it. The policy of the workload cluster
	// decides whether the agent follows.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
}

// Upgrade asks an agent to change its own image.
type Upgrade struct {
	// ID identifies the request. An agent handles each ID once.
	ID string `json:"id"`
	// Version that the new agent reports, which is also the tag of its image.
	Version string `json:"version"`
	// Repository of the image. If empty, that of the running agent.
	Repository string `json:"repository,omitempty"`
	// Digest of the image, such as sha256:…. If empty, the tag is used alone.
	Digest string `json:"digest,omitempty"`
	// Timeout is the time in which the new agent must be in sync, such as 5m. After that, the old image is restored.
	Timeout string `json:"timeout"`
}

// Limits bound what the hub stores for an agent. They apply to each kind. If zero, the setting of the principal.
type Limits struct {
	// Items is the number of objects.
	Items int64 `json:"items,omitempty"`
	// Mebibytes is the size of their content.
	Mebibytes int64 `json:"mebibytes,omitempty"`
}

// ClusterSecret is metadata of a cluster Secret, for the cluster generators of ApplicationSets.
type ClusterSecret struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Facts are the keys of facts that become labels of the Secret. The agent reports facts, see Status.Facts. A fact that
	// it no longer reports keeps its last value. Labels have precedence.
	Facts []string `json:"facts,omitempty"`
}

// Status is the state of an agent, written by the principal.
type Status struct {
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Connected reports whether the agent has a session. Since is the start of this state.
	Connected bool         `json:"connected"`
	Since     *metav1.Time `json:"since,omitempty"`
	// Principal is the principal replica that has the session, or had the last one.
	Principal string `json:"principal,omitempty"`
	// Session identifies the session. If two principal replicas report an agent, the newer session is valid.
	Session *Session `json:"session,omitempty"`
	// ClusterUID is the UID of namespace kube-system of the workload cluster. The principal refuses another cluster.
	ClusterUID string `json:"clusterUID,omitempty"`
	// Store is the last known state of the agent's API server storage. A store regression is not trusted.
	Store *Store `json:"store,omitempty"`
	// HistoryMark grows while the agent is connected. The agent knows the last one, so that it recognizes a hub that was
	// restored from a backup.
	HistoryMark uint64 `json:"historyMark,omitempty"`
	// HistoryRecord identifies the marks of this Agent. It changes if HistoryMark was lost and begins again.
	HistoryRecord string `json:"historyRecord,omitempty"`
	Version       string `json:"version,omitempty"`
	Protocol      string `json:"protocol,omitempty"`
	// UnsupportedKinds are the values of Spec.Kinds that the release of the agent does not replicate, and childApplications.
	// Objects of these kinds stay as they are.
	UnsupportedKinds []string `json:"unsupportedKinds,omitempty"`
	// Facts that the agent reported about its cluster when it connected. A fact that Spec.Cluster.Facts lists and the agent
	// no longer reports keeps its last value.
	Facts []Fact `json:"facts,omitempty"`
	// Applications is the number of Applications. Diverged is the number of items of all kinds that differ.
	Applications int64 `json:"applications"`
	Diverged     int64 `json:"diverged"`
	// OldestUnacked is the time of the oldest change that is not acknowledged.
	OldestUnacked *metav1.Time `json:"oldestUnacked,omitempty"`
	// LastConfirmed is the last time both sides were in sync.
	LastConfirmed *metav1.Time `json:"lastConfirmed,omitempty"`
	// ClockSkewSeconds is how far the agent's clock was ahead of the hub when it connected. It includes the network delay.
	// It is negative if the clock was behind.
	ClockSkewSeconds *int64 `json:"clockSkewSeconds,omitempty"`
	// Certificate of the last connection.
	Certificate *Certificate `json:"certificate,omitempty"`
	// Holds wait for a confirmation. At most MaxHolds.
	Holds []Hold `json:"holds,omitempty"`
	// Pending counts what waits in the open session. If nil, the agent is not connected or not compared yet.
	Pending *Pending `json:"pending,omitempty"`
	// Upgrade is what the agent reports about upgrades of itself. If nil, its release does not support them.
	Upgrade *UpgradeStatus `json:"upgrade,omitempty"`
	// Conditions: Connected, Registered, Synced, Held, Writable, WithinLimits.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// UpgradeStatus is the state of the last upgrade of an agent.
type UpgradeStatus struct {
	// ID of the request. If empty, there was none.
	ID string `json:"id"`
	// Phase is one of the phases below.
	Phase string `json:"phase"`
	// Message contains text from the agent.
	Message string `json:"message"`
}

// Phases of an upgrade.
const (
	UpgradeReady      = "Ready"      // no request was handled yet
	UpgradeRefused    = "Refused"    // the workload cluster does not allow it, or another tool manages the agent
	UpgradeWaiting    = "Waiting"    // the agent is not in sync, so that it does not begin
	UpgradePreparing  = "Preparing"  // the Job that can restore the old image starts
	UpgradeUpgrading  = "Upgrading"  // the image is changed, and the new agent is not in sync yet
	UpgradeSucceeded  = "Succeeded"  // the new agent is in sync
	UpgradeRolledBack = "RolledBack" // the Job restored the old image
	UpgradeFailed     = "Failed"     // the image was not changed, or another client changed it
)

// Fact is a property of a workload cluster, in the form of a label.
type Fact struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Session identifies a session. A higher incarnation is newer, then a higher attempt.
type Session struct {
	Incarnation uint64 `json:"incarnation"`
	Attempt     uint64 `json:"attempt"`
}

// Store is the identity and a revision of an API server's storage.
type Store struct {
	UID      string `json:"uid"`
	Revision uint64 `json:"revision"`
	// Mark is the history mark that the agent reported last, and MarkRecord the UID of its record.
	Mark       uint64 `json:"mark,omitempty"`
	MarkRecord string `json:"markRecord,omitempty"`
	// Untrusted reports a store that is older or another one, until a user confirms it.
	Untrusted bool `json:"untrusted"`
}

// Certificate identifies a client certificate.
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

// Condition types.
const (
	ConditionRegistered = "Registered" // the registration is accepted
	ConditionConnected  = "Connected"
	ConditionSynced     = "Synced"   // no item differs
	ConditionHeld       = "Held"     // a hold waits for a confirmation
	ConditionWritable   = "Writable" // the agent's API server accepts writes; absent if no write outage was reported

	// ConditionWithinLimits reports whether the hub stores all items of the agent. It is absent if no limit was reached.
	ConditionWithinLimits = "WithinLimits"
)

// Annotations that request an action from the principal.
const (
	// ConfirmAnnotation confirms a hold. Its value is the ID of the hold. ConfirmCluster with a UID confirms that this
	// cluster replaces the previous one.
	ConfirmAnnotation = Group + "/confirm"
	// RetireAnnotation marks the cluster as permanently gone. The principal removes finalizers that wait for it.
	RetireAnnotation = Group + "/retire"
)

// IssuedAnnotation lists valid certificates that the principal issued to an agent, separated by spaces:
// fingerprint/expiry/generation/key. A connected agent may have a newer one than the status shows.
const IssuedAnnotation = Group + "/issued-certificates"

// IssuedProxyAnnotation lists valid certificates that users got for the cluster of an agent, in the same form.
const IssuedProxyAnnotation = Group + "/issued-proxy-certificates"

// ReusedAnnotation suspends an agent until it joins again. The principal sets it if two clients use the key of the agent. Its
// value says how that was found.
const ReusedAnnotation = Group + "/certificate-reused"

// ConfirmCluster is the prefix of the ID that confirms another cluster.
const ConfirmCluster = "cluster-"

// FleetHold is the ConfigMap that records a hold on many agents. ConfirmAnnotation with the ID confirms it. Without an
// ID, there is no hold.
const FleetHold = "argocd-agent-fleet-hold"

// Keys of that ConfigMap.
const (
	FleetHoldID       = "id"
	FleetHoldSince    = "since"    // RFC 3339
	FleetHoldAgents   = "agents"   // number of agents that would lose items
	FleetHoldCompared = "compared" // number of compared agents
	FleetHoldItems    = "items"    // number of items
	FleetHoldSample   = "sample"   // some of the items, one per line
	FleetHoldSettings = "settings" // identifies the settings of the principal at that time
)

// Finalizer keeps a deleted Agent until its certificate is revoked and its derived objects are deleted.
const Finalizer = Group + "/agent"

// SelfRegisteredLabel marks an Agent that was created by the first connection, with the value true.
const SelfRegisteredLabel = Group + "/self-registered-cluster"

// Values of Spec.Allow.
const (
	AllowRoles         = "roles"
	AllowNotifications = "notifications"
)

// Values of Spec.ChildApplications.
const (
	ChildApplicationsNone     = "None"
	ChildApplicationsReadOnly = "ReadOnly"
)

// Values of Spec.Kinds.
const (
	KindApplications = "applications"
	KindAppProjects  = "appprojects"
	KindRepositories = "repositories"
	KindGPGKeys      = "gpgkeys"
)

// Package model has the types that the supervisor of a lab and its clients share: the specification (Spec) and the
// state (State), both stored as JSON in the directory of the lab.
package model

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/argocd-agent/argocd-agent/lab/internal/tools"
)

// Role is the role of a cluster.
type Role string

// The roles of a cluster.
const (
	Hub        Role = "hub"
	Managed    Role = "managed"
	Autonomous Role = "autonomous"
)

// HubName is the name of the hub in every lab.
const HubName = "hub"

// ArgoCDNamespace is the namespace of Argo CD, the principal and the agents on every cluster.
const ArgoCDNamespace = "argocd"

// Spec is the specification of a lab.
type Spec struct {
	Folder     string        `json:"directory"`
	Clusters   []ClusterSpec `json:"clusters"` // the hub first
	Tools      tools.Set     `json:"tools"`
	Install    string        `json:"install"`              // install directory of the checkout, for the RBAC of principal and agent
	ArgoCDPort int           `json:"argocdPort,omitempty"` // If 0, any port
	WhilePID   int           `json:"whilePID,omitempty"`   // the lab ends with this process. If 0, with `lab down`
	Ephemeral  bool          `json:"ephemeral,omitempty"`  // the directory is deleted when the lab ends
	Fsync      bool          `json:"fsync,omitempty"`      // etcd uses fsync, for benchmarks
	Audited    bool          `json:"audited,omitempty"`    // API servers write an audit log
}

// ClusterSpec is the specification of one cluster.
type ClusterSpec struct {
	Name  string `json:"name"`
	Role  Role   `json:"role"`
	Nodes int    `json:"nodes"`          // simulated nodes. If 0, pods stay pending
	Bare  bool   `json:"bare,omitempty"` // only the control plane and the CRDs of Argo CD
}

// State is the state of a running lab.
type State struct {
	Spec     Spec           `json:"spec"`
	PID      int            `json:"pid"` // of the supervisor
	Started  time.Time      `json:"started"`
	ReadyIn  time.Duration  `json:"readyIn"`
	Clusters []ClusterState `json:"clusters"`
	ArgoCD   ArgoCD         `json:"argocd"`
	Git      Git            `json:"git"`
}

// ClusterState is the state of one cluster.
type ClusterState struct {
	Name          string     `json:"name"`
	Role          Role       `json:"role"`
	Server        string     `json:"server"` // URL of the API server
	CAFile        string     `json:"caFile"`
	CAKeyFile     string     `json:"caKeyFile"`  // to sign for a proxy in front of the API server
	Kubeconfig    string     `json:"kubeconfig"` // of the administrator
	RunAs         Kubeconfig `json:"runAs"`      // ServiceAccount of principal or agent
	EtcdURL       string     `json:"etcdURL"`    // etcd of the cluster
	EtcdPeer      string     `json:"etcdPeer"`
	PodLog        string     `json:"podLog"`        // log of every simulated pod, in CRI format
	AuditLog      string     `json:"auditLog"`      // of the API server, JSON lines; only if the lab is audited
	Redis         Redis      `json:"redis"`         // with a password
	RepoServer    string     `json:"repoServer"`    // host:port, TLS
	CommitServer  string     `json:"commitServer"`  // host:port at which the application controller expects a commit-server; the lab runs none
	KubeletServer string     `json:"kubeletServer"` // host:port of the simulated kubelet
}

// Kubeconfig is an identity on a cluster.
type Kubeconfig struct {
	User string `json:"user"` // system:serviceaccount:…
	File string `json:"file"`
}

// Redis has the address and password of a cluster's Redis.
type Redis struct {
	Address  string `json:"address"`
	Password string `json:"password"`
}

// ArgoCD has the address and credentials of the hub's Argo CD API.
type ArgoCD struct {
	Address   string `json:"address"` // host:port, TLS
	CAFile    string `json:"caFile"`
	Username  string `json:"username"`
	Password  string `json:"password"`
	Token     string `json:"token"`
	CLIFolder string `json:"cliFolder"` // ARGOCD_CONFIG_DIR of a logged-in CLI
}

// Git is the lab's Git server.
type Git struct {
	URL      string `json:"url"`
	Store    string `json:"store"`  // directory of its repositories
	CAFile   string `json:"caFile"` // CA of its certificate
	Username string `json:"username"`
	Password string `json:"password"`
}

// The files in the directory of a lab.
func SpecFile(folder string) string    { return filepath.Join(folder, "spec.json") }
func StateFile(folder string) string   { return filepath.Join(folder, "lab.json") }
func LockFile(folder string) string    { return filepath.Join(folder, "lock") }
func LogFolder(folder string) string   { return filepath.Join(folder, "logs") }
func BinFolder(folder string) string   { return filepath.Join(folder, "bin") }
func Kubeconfigs(folder string) string { return filepath.Join(folder, "kubeconfig") }

// Write stores a value as JSON atomically, readable only by its owner.
func Write(file string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", file, err)
	}
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(file+".new", file)
}

// Read reads a value that Write stored.
func Read(file string, value any) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, value); err != nil {
		return fmt.Errorf("decode %s: %w", file, err)
	}
	return nil
}

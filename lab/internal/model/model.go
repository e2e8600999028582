// Package model holds what the supervisor of a lab and its users say to each other: the wish (Spec) and the result
// (State), both kept as JSON in the lab's folder.
package model

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/argocd-agent/argocd-agent/lab/internal/tools"
)

// Role is what a cluster is for.
type Role string

// The roles of a cluster.
const (
	Hub        Role = "hub"
	Managed    Role = "managed"
	Autonomous Role = "autonomous"
)

// HubName is the name of the hub's cluster in every lab.
const HubName = "hub"

// ArgoCDNamespace is where Argo CD, the principal and the agents live on every cluster.
const ArgoCDNamespace = "argocd"

// Spec is the wish for a lab.
type Spec struct {
	Folder     string        `json:"folder"`
	Clusters   []ClusterSpec `json:"clusters"` // the hub first
	Tools      tools.Set     `json:"tools"`
	Install    string        `json:"install"`              // the checkout's install folder, for the RBAC of principal and agent
	ArgoCDPort int           `json:"argocdPort,omitempty"` // 0: any
	WhilePID   int           `json:"whilePID,omitempty"`   // the lab ends with this process; 0: with `lab down`
	Ephemeral  bool          `json:"ephemeral,omitempty"`  // the folder is removed when the lab ends
	Fsync      bool          `json:"fsync,omitempty"`      // etcd syncs to disk, as benchmarks need it
}

// ClusterSpec is the wish for one cluster.
type ClusterSpec struct {
	Name  string `json:"name"`
	Role  Role   `json:"role"`
	Nodes int    `json:"nodes"`          // simulated nodes; 0: pods stay pending
	Bare  bool   `json:"bare,omitempty"` // only the control plane and Argo CD's CRDs
}

// State is what runs.
type State struct {
	Spec     Spec           `json:"spec"`
	PID      int            `json:"pid"` // the supervisor
	Started  time.Time      `json:"started"`
	ReadyIn  time.Duration  `json:"readyIn"`
	Clusters []ClusterState `json:"clusters"`
	ArgoCD   ArgoCD         `json:"argocd"`
	Git      Git            `json:"git"`
}

// ClusterState is what runs of one cluster.
type ClusterState struct {
	Name          string     `json:"name"`
	Role          Role       `json:"role"`
	Server        string     `json:"server"` // the API server's URL
	CAFile        string     `json:"caFile"`
	CAKeyFile     string     `json:"caKeyFile"`  // to sign for a proxy that stands in for the API server
	Kubeconfig    string     `json:"kubeconfig"` // cluster admin
	RunAs         Kubeconfig `json:"runAs"`      // the principal's or agent's ServiceAccount
	EtcdURL       string     `json:"etcdURL"`    // the cluster's own store
	EtcdPeer      string     `json:"etcdPeer"`
	PodLog        string     `json:"podLog"`        // what every simulated pod logs, in CRI format
	Redis         Redis      `json:"redis"`         // with a password
	RepoServer    string     `json:"repoServer"`    // host:port, TLS
	KubeletServer string     `json:"kubeletServer"` // host:port of the simulated kubelet
}

// Kubeconfig is an identity on a cluster.
type Kubeconfig struct {
	User string `json:"user"` // system:serviceaccount:…
	File string `json:"file"`
}

// Redis is how a cluster's Redis is reached.
type Redis struct {
	Address  string `json:"address"`
	Password string `json:"password"`
}

// ArgoCD is how the hub's Argo CD API is reached.
type ArgoCD struct {
	Address   string `json:"address"` // host:port, TLS
	CAFile    string `json:"caFile"`
	Username  string `json:"username"`
	Password  string `json:"password"`
	Token     string `json:"token"`
	CLIFolder string `json:"cliFolder"` // ARGOCD_CONFIG_DIR of a CLI that is logged in
}

// Git is the lab's Git server.
type Git struct {
	URL      string `json:"url"`
	Store    string `json:"store"`  // the folder of its repositories
	CAFile   string `json:"caFile"` // what its certificate is signed by
	Username string `json:"username"`
	Password string `json:"password"`
}

// The files of a lab's folder.
func SpecFile(folder string) string    { return filepath.Join(folder, "spec.json") }
func StateFile(folder string) string   { return filepath.Join(folder, "lab.json") }
func LockFile(folder string) string    { return filepath.Join(folder, "lock") }
func LogFolder(folder string) string   { return filepath.Join(folder, "logs") }
func BinFolder(folder string) string   { return filepath.Join(folder, "bin") }
func Kubeconfigs(folder string) string { return filepath.Join(folder, "kubeconfig") }

// Write stores a value as JSON, readable by its owner only, and never half.
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

// Read loads a value that Write stored.
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

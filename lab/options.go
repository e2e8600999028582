package lab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/lab/internal/model"
)

// Role is the role of a cluster.
type Role = model.Role

// The roles of a cluster.
const (
	Hub        = model.Hub
	Managed    = model.Managed
	Autonomous = model.Autonomous
)

// Spoke has the options of a workload cluster.
type Spoke struct {
	Name string
	Role Role // Managed or Autonomous
}

// DefaultSpokes returns one spoke of each mode.
func DefaultSpokes() []Spoke {
	return []Spoke{{Name: "managed", Role: Managed}, {Name: "autonomous", Role: Autonomous}}
}

// Options are the options of a lab. The zero value is useful.
type Options struct {
	Dir        string    // directory of the lab. If empty, DefaultFolder
	Spokes     []Spoke   // If nil, DefaultSpokes. If empty, only a hub
	Hubs       []string  // names of more hubs. They are bare
	Bare       bool      // only control planes with the CRDs of Argo CD: no Argo CD, no Redis, no nodes
	ArgoCDPort int       // of argocd-server. If 0, any
	Fsync      bool      // etcd uses fsync, for benchmarks
	Audited    bool      // API servers write an audit log, see Cluster.AuditLog
	WhilePID   int       // stop the lab when this process ends. If 0, with Down
	Ephemeral  bool      // delete the directory when the lab ends
	Tools      []string  // names of the tools to build and link. If empty, all
	Binary     string    // lab binary that supervises. If empty, it is built from the checkout
	Progress   io.Writer // If nil, progress is discarded
}

// spec returns the specification for the supervisor, without the parts that must be built first.
func (o Options) spec() (model.Spec, error) {
	spec := model.Spec{
		Folder: o.Dir, ArgoCDPort: o.ArgoCDPort,
		WhilePID: o.WhilePID, Ephemeral: o.Ephemeral, Fsync: o.Fsync, Audited: o.Audited,
	}
	spokes := o.Spokes
	if spokes == nil {
		spokes = DefaultSpokes()
	}
	nodes := 1
	if o.Bare {
		nodes = 0
	}
	spec.Clusters = []model.ClusterSpec{{Name: model.HubName, Role: model.Hub, Bare: o.Bare, Nodes: nodes}}
	for _, spoke := range spokes {
		if err := checkSpoke(spoke, spec.Clusters); err != nil {
			return spec, err
		}
		spec.Clusters = append(spec.Clusters, model.ClusterSpec{Name: spoke.Name, Role: spoke.Role, Bare: o.Bare, Nodes: nodes})
	}
	for _, name := range o.Hubs {
		if err := checkName(name, spec.Clusters); err != nil {
			return spec, err
		}
		spec.Clusters = append(spec.Clusters, model.ClusterSpec{Name: name, Role: model.Hub, Bare: true})
	}
	return spec, checkPaths(spec)
}

// checkPaths rejects directories with a path that is too long for the sockets of the repo-servers' gpg-agents.
func checkPaths(spec model.Spec) error {
	const longest = 107
	for _, c := range spec.Clusters {
		socket := filepath.Join(spec.Folder, "clusters", c.Name, "gnupg", "S.gpg-agent.browser")
		if over := len(socket) - longest; over > 0 && !c.Bare {
			return fmt.Errorf("the path of the directory %s is %d characters too long for sockets in it: choose a shorter one with -lab",
				spec.Folder, over)
		}
	}
	return nil
}

var clusterName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$`)

func checkSpoke(spoke Spoke, present []model.ClusterSpec) error {
	if spoke.Role != Managed && spoke.Role != Autonomous {
		return fmt.Errorf("spoke %s: %q is no role: use managed or autonomous", spoke.Name, spoke.Role)
	}
	return checkName(spoke.Name, present)
}

func checkName(name string, present []model.ClusterSpec) error {
	if !clusterName.MatchString(name) {
		return fmt.Errorf("%q is no name for a cluster: use lower-case letters, digits and dashes", name)
	}
	if slices.ContainsFunc(present, func(c model.ClusterSpec) bool { return c.Name == name }) {
		return fmt.Errorf("two clusters are called %s: choose another name", name)
	}
	return nil
}

// DirVariable is the environment variable with the lab to use: a directory, or the name of a lab of the user.
const DirVariable = "ARGOCD_AGENT_LAB"

// DefaultDir returns the directory of the lab with a name. A name with a slash is a directory. If the name is empty,
// FolderVariable or "default" is used.
func DefaultDir(name string) (string, error) {
	if name == "" {
		name = os.Getenv(DirVariable)
	}
	if name == "" {
		name = "default"
	}
	if strings.ContainsRune(name, filepath.Separator) || name == "." {
		return filepath.Abs(name)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the directory of the labs (set HOME, or name a directory): %w", err)
	}
	return filepath.Join(cache, "argocd-agent-lab", "labs", name), nil
}

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

// Role is what a cluster is for.
type Role = model.Role

// The roles of a cluster.
const (
	Hub        = model.Hub
	Managed    = model.Managed
	Autonomous = model.Autonomous
)

// Spoke is the wish for a workload cluster.
type Spoke struct {
	Name string
	Role Role // Managed or Autonomous
}

// DefaultSpokes is one of each kind.
func DefaultSpokes() []Spoke {
	return []Spoke{{Name: "managed", Role: Managed}, {Name: "autonomous", Role: Autonomous}}
}

// Options are wishes for a lab; the zero value is a good one.
type Options struct {
	Folder     string    // where the state is kept; empty: DefaultFolder
	Spokes     []Spoke   // nil: DefaultSpokes; empty: only a hub
	Bare       bool      // only control planes with Argo CD's CRDs: no Argo CD, no Redis, no nodes
	ArgoCDPort int       // of argocd-server; 0: any
	Fsync      bool      // let etcd sync to disk, as benchmarks need it
	WhilePID   int       // end the lab with this process; 0: with Down
	Ephemeral  bool      // remove the folder when the lab ends
	Program    string    // the lab program that supervises; empty: built from the checkout
	Progress   io.Writer // progress lines; nil: discarded
}

// spec turns wishes into what the supervisor is told, apart from what has to be built first.
func (o Options) spec() (model.Spec, error) {
	spec := model.Spec{
		Folder: o.Folder, ArgoCDPort: o.ArgoCDPort,
		WhilePID: o.WhilePID, Ephemeral: o.Ephemeral, Fsync: o.Fsync,
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
	return spec, checkPaths(spec)
}

// checkPaths refuses folders with so long a path that the kernel refuses the sockets of the repo-servers' gpg-agents.
func checkPaths(spec model.Spec) error {
	const longest = 107
	for _, c := range spec.Clusters {
		socket := filepath.Join(spec.Folder, "clusters", c.Name, "gnupg", "S.gpg-agent.browser")
		if over := len(socket) - longest; over > 0 && !c.Bare {
			return fmt.Errorf("the path of the folder %s is %d characters too long for sockets in it: choose a shorter one with -lab",
				spec.Folder, over)
		}
	}
	return nil
}

var clusterName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$`)

func checkSpoke(spoke Spoke, present []model.ClusterSpec) error {
	if !clusterName.MatchString(spoke.Name) {
		return fmt.Errorf("%q is no name for a spoke: use lower-case letters, digits and dashes", spoke.Name)
	}
	if spoke.Role != Managed && spoke.Role != Autonomous {
		return fmt.Errorf("spoke %s: %q is no role: use managed or autonomous", spoke.Name, spoke.Role)
	}
	if slices.ContainsFunc(present, func(c model.ClusterSpec) bool { return c.Name == spoke.Name }) {
		return fmt.Errorf("two clusters are called %s: choose another name", spoke.Name)
	}
	return nil
}

// FolderVariable is the environment variable that names the lab to use: a folder, or the name of one of the user's labs.
const FolderVariable = "ARGOCD_AGENT_LAB"

// DefaultFolder is where the lab of that name is kept. A name with a slash is a folder itself; an empty one stands for
// what FolderVariable says, or else "default".
func DefaultFolder(name string) (string, error) {
	if name == "" {
		name = os.Getenv(FolderVariable)
	}
	if name == "" {
		name = "default"
	}
	if strings.ContainsRune(name, filepath.Separator) || name == "." {
		return filepath.Abs(name)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the folder of the labs (set HOME, or name a folder): %w", err)
	}
	return filepath.Join(cache, "argocd-agent-lab", "labs", name), nil
}

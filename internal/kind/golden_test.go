package kind

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

var update = flag.Bool("update", false, "write the golden files again")

// Projection version 1, pinned: an object, its content and its hash. Two releases that project differently would
// overwrite each other indefinitely. To change one of these files, add a projection version instead.
func TestProjection_Version1(t *testing.T) {
	sharing := managedHub()
	sharing.Settings.ShareUnscopedRepositories = true
	commanding := managedHub()
	commanding.RefreshNonce = func(engine.Key) string { return "nonce-1" }
	anywhere := autoSpoke()
	anywhere.Settings.AllowedNamespaces = []string{"team"}
	for _, c := range []struct {
		name  string
		kind  Kind
		world *Env
	}{
		{"application-managed", ApplicationKind{}, managedHub()},
		{"application-managed-deleting", ApplicationKind{}, managedHub()},
		{"application-managed-frozen", ApplicationKind{}, managedHub()},
		{"application-destination-mapping", ApplicationKind{}, newEnv(Hub, Managed, ByDestination)},
		{"application-autonomous", ApplicationKind{}, autoSpoke()},
		{"application-autonomous-elsewhere", ApplicationKind{}, anywhere},
		{"status-managed", StatusKind{}, managedSpoke()},
		{"status-autonomous", StatusKind{}, autoSpoke()},
		{"command", CommandKind{}, commanding},
		{"appproject-managed", AppProjectKind{}, managedHub()},
		{"appproject-autonomous", AppProjectKind{}, autoSpoke()},
		{"repository", RepositoryKind{}, sharing},
		{"gpgkey", GPGKeyKind{}, managedHub()},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join("testdata", "projection-v1")
			in, err := os.ReadFile(filepath.Join(dir, c.name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			item, ok := c.kind.Publish(object(t, string(in)), c.world)
			if !ok {
				t.Fatal("not published")
			}
			got := fmt.Sprintf("scope   %s\nkey     %s\nneeds   %s\nversion %s\ncontent %s\nextra   %s\n",
				c.kind.Scope(), item.Key, item.DependsOn, engine.VersionOf(item.Content), item.Content, item.Extra)
			file := filepath.Join(dir, c.name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || !bytes.Equal(want, []byte(got)) {
				t.Errorf("%s says (%v)\n%s\nand this build\n%s", file, err, want, got)
			}
		})
	}
	entries, _ := os.ReadDir(filepath.Join("testdata", "projection-v1"))
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			if _, err := os.Stat(filepath.Join("testdata", "projection-v1", name+".golden")); err != nil {
				t.Errorf("%s has no golden file", e.Name())
			}
		}
	}
}

func TestAll_OrdersKindsByDependency(t *testing.T) {
	var scopes []string
	for _, k := range All() {
		scopes = append(scopes, k.Scope())
	}
	if got := strings.Join(scopes, " "); got != "appproject repository gpgkey settings application child status command" {
		t.Errorf("the order is %s", got)
	}
}

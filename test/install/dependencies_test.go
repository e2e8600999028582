package install

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Updates of dependencies are proposed for every Go module and npm package of the repository, and for nothing else.
func TestDependencyUpdates_CoverEveryModule(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directory   string
			Directories []string
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../.github/dependabot.yml")), &config); err != nil {
		t.Fatal(err)
	}
	for ecosystem, file := range map[string]string{"gomod": "go.mod", "npm": "package.json"} {
		var patterns []string
		for _, update := range config.Updates {
			if update.Ecosystem == ecosystem {
				patterns = append(append(patterns, update.Directory), update.Directories...)
			}
		}
		listed, refusal := runIn(t, "../..", "git", "ls-files", file, "*/"+file)
		if refusal != "" || listed == "" {
			t.Fatalf("no %s in the repository: %s", file, refusal)
		}
		used := map[string]bool{"": true}
		for name := range strings.FieldsSeq(listed) {
			dir := filepath.Join("/", filepath.Dir(name))
			match := slices.IndexFunc(patterns, func(pattern string) bool { ok, err := filepath.Match(pattern, dir); return ok && err == nil })
			if match < 0 {
				t.Errorf("%s: no updates for %s", ecosystem, dir)
				continue
			}
			used[patterns[match]] = true
		}
		for _, pattern := range patterns {
			if !used[pattern] {
				t.Errorf("%s: nothing matches %s", ecosystem, pattern)
			}
		}
	}
}

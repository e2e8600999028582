package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// configFile has short names for hubs and agents, in the form that existing users have.
type configFile struct {
	Contexts struct {
		Principals map[string]contextEntry `json:"principals,omitempty"`
		Agents     map[string]contextEntry `json:"agents,omitempty"`
	} `json:"contexts"`
	DefaultPrincipal string `json:"default-principal,omitempty"`
}

// contextEntry is where an Argo CD is.
type contextEntry struct {
	Context   string `json:"kube-context"`
	Namespace string `json:"namespace,omitempty"`
}

func defaultConfigFile(env map[string]string) string {
	folder := env["XDG_CONFIG_HOME"]
	if folder == "" {
		if env["HOME"] == "" {
			return ""
		}
		folder = filepath.Join(env["HOME"], ".config")
	}
	return filepath.Join(folder, "argocd-agent", "ctl.conf")
}

// readConfigFile reads the file. One that nobody asked for may be absent.
func readConfigFile(file string, needed bool) (*configFile, error) {
	c := &configFile{}
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) && !needed {
		return c, nil
	}
	if err != nil {
		return nil, usageErrorf("read the file of short names (--config): %w", err)
	}
	if err := yaml.UnmarshalStrict(content, c); err != nil {
		return nil, usageErrorf("%s is no file of short names: %w; see `argocd-agentctl config --help`", file, err)
	}
	return c, nil
}

// write replaces the file in one step.
func (c *configFile) write(file string) error {
	content, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("make the folder of %s: %w", file, err)
	}
	return writePrivate(file, content)
}

// writePrivate replaces a file in one step, by one that only its owner can read.
func writePrivate(file string, content []byte) error {
	next, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // which nobody else can read
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer os.Remove(next.Name()) // it is not there if all went well
	_, err = next.Write(content)
	if end := next.Close(); err == nil {
		err = end
	}
	if err == nil {
		err = os.Rename(next.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

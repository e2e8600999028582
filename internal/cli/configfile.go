package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// configFile is the file of short names.
type configFile struct {
	Contexts struct {
		Principals map[string]contextEntry `json:"principals,omitempty"`
		Agents     map[string]contextEntry `json:"agents,omitempty"`
	} `json:"contexts"`
	DefaultPrincipal string `json:"default-principal,omitempty"`
}

type contextEntry struct {
	Context   string `json:"kube-context"`
	Namespace string `json:"namespace,omitempty"`
}

func defaultConfigFile(env map[string]string) string {
	dir := env["XDG_CONFIG_HOME"]
	if dir == "" {
		if env["HOME"] == "" {
			return ""
		}
		dir = filepath.Join(env["HOME"], ".config")
	}
	return filepath.Join(dir, "argocd-agent", "ctl.conf")
}

// readConfigFile reads the file. If it is not required, it may be absent.
func readConfigFile(file string, required bool) (*configFile, error) {
	c := &configFile{}
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) && !required {
		return c, nil
	}
	if err != nil {
		return nil, usageErrorf("read --config: %w", err)
	}
	if err := yaml.UnmarshalStrict(content, c); err != nil {
		return nil, usageErrorf("decode %s: %w; see `argocd-agentctl config --help`", file, err)
	}
	return c, nil
}

func (c *configFile) write(file string) error {
	content, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode %s: %w", file, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("create directory of %s: %w", file, err)
	}
	return writePrivate(file, content)
}

// writePrivate replaces a file atomically. Only its owner can read it.
func writePrivate(file string, content []byte) error {
	next, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer os.Remove(next.Name()) // fails after the rename
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

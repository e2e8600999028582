package cli

import (
	"os"
	"path/filepath"
	"testing"
)

func TestConfig_Transcript(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	content := "{apiVersion: v1, kind: Config, current-context: first, clusters: [{name: x, cluster: {server: 'https://127.0.0.1:1'}}], " +
		"contexts: [{name: first, context: {cluster: x}}, {name: second, context: {cluster: x, namespace: ns}}]}"
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "argocd-agent", "ctl.conf")
	s := &script{t: t, env: []string{"XDG_CONFIG_HOME=" + dir, "KUBECONFIG=" + kubeconfig}, replace: map[string]string{dir: "DIR"},
		commands: map[string]func(string) string{"remove": func(string) string {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			return ""
		}}}
	s.play("config.txt")
}

// Commands and flags of existing installations are accepted. Without a cluster, commands with a meaning fail to connect.
func TestExistingCommands_Transcript(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("{apiVersion: v1, kind: Config, current-context: none}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &script{t: t, env: []string{"XDG_CONFIG_HOME=" + dir, "KUBECONFIG=" + kubeconfig}, replace: map[string]string{dir: "DIR"}}
	s.play("existing.txt")
}

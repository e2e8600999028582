package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

func TestSettings_ReadFlagsAndEnvironment(t *testing.T) {
	s := &settings{prefix: "ARGOCD_AGENT_", env: map[string]string{}, flags: map[string]string{}}
	s.readArguments([]string{"agent", "--server-address", "hub", "--server-address=standby", "--destination-based-mapping", "--allowed-namespaces=a,b", "--redis-addr", "r:1"})
	container := &corev1.Container{
		EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "params"}}}},
		Env: []corev1.EnvVar{{Name: "ARGOCD_AGENT_LOG_LEVEL", Value: "debug"}, {Name: "ARGOCD_AGENT_REMOTE_PORT", ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "params"}, Key: "agent.server.port"}}}},
	}
	if err := s.readEnvironment(container, func(string) (map[string]string, error) {
		return map[string]string{"ARGOCD_AGENT_MODE": "managed", "ARGOCD_AGENT_REMOTE_SERVER": "other", "agent.server.port": "8443"}, nil
	}); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{"server-address": "hub,standby", "server-port": "8443", "agent-mode": "managed", "allowed-namespaces": "a,b",
		"redis-addr": "r:1", "log-level": "debug", "label-selector": ""} {
		if got := s.get(flag); got != want {
			t.Errorf("--%s is %q, want %q", flag, got, want)
		}
	}
	if !s.on("destination-based-mapping") || s.on("create-namespace") {
		t.Error("a boolean flag has the wrong value")
	}
}

func TestSpan_UsesOneOrTwoUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0s", 90 * time.Second: "90s", 150 * time.Second: "2m30s", 5 * time.Minute: "5m",
		90 * time.Minute: "90m", 30 * time.Hour: "30h", 72 * time.Hour: "3d"} {
		if got := span(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
}

// Text of agents must not reach the terminal with control characters.
func TestOutput_RemovesControlCharacters(t *testing.T) {
	p := &Program{Now: func() time.Time { return today }}
	agent := v1alpha1.Agent{Status: v1alpha1.Status{Version: "v1\x1b[2J\u009b31m\r\nName: other", ClusterUID: "x"}}
	agent.Name = "w1"
	for _, text := range []string{p.describeAgent(&agent), p.table([]string{"V"}, [][]cell{{c(agent.Status.Version)}})} {
		for _, r := range text {
			if r != '\n' && r < ' ' || r == 0x9b {
				t.Errorf("%q has a control character", text)
			}
		}
	}
}

func TestWritePrivate_SetsMode0600(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writePrivate(file, []byte("secret")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := filepath.Glob(file + ".*"); len(left) > 0 {
		t.Errorf("temporary files: %v", left)
	}
}

func TestUndelivered_RecentApplication(t *testing.T) {
	p := &Program{Now: func() time.Time { return today }}
	agent := &v1alpha1.Agent{Spec: v1alpha1.Spec{Mode: "managed"}, Status: v1alpha1.Status{Connected: true}}
	for created, want := range map[string]string{"2026-03-01T11:59:50Z": "recently", "2026-03-01T11:00:00Z": "application controller", "": "application controller"} {
		app, err := kind.Parse([]byte(`{"metadata": {"name": "a", "namespace": "w1", "creationTimestamp": "` + created + `"}, "spec": {}}`))
		if err != nil {
			t.Fatal(err)
		}
		if found := p.undelivered(agent, app); len(found) != 1 || !strings.Contains(found[0].Reason, want) {
			t.Errorf("created %q: %+v", created, found)
		}
	}
}

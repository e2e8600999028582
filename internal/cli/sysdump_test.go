package cli

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent/argocd-agent/lab"
)

func TestRedactText(t *testing.T) {
	const key = "-----BEGIN EC PRIVATE KEY-----\nplanted\n-----END EC PRIVATE KEY-----"
	for text, want := range map[string]string{
		"a " + key + " b":                          "a REDACTED b",
		"-----BEGIN PRIVATE KEY-----\nplanted cut": "REDACTED",
		"run join://hub:443/w1/PIN/ID.planted now": "run join://REDACTED now",
		"Authorization: Bearer planted.planted":    "Authorization: Bearer REDACTED",
		"jwt eyJhbGciOi.planted.planted end":       "jwt REDACTED end",
		"https://user:planted@git.example.com/x":   "https://REDACTED@git.example.com/x",
		"https://planted@git.example.com/x":        "https://REDACTED@git.example.com/x",
		"password=planted user=x":                  "password=REDACTED user=x",
		`{"password": "planted two", "a": "b"}`:    `{"password": REDACTED, "a": "b"}`,
		`{\"token\":\"planted\",\"a\":1}`:          `{\"token\":REDACTED,\"a\":1}`,
		"apiKey: planted":                          "apiKey: REDACTED",
		"secretName: argocd-redis":                 "secretName: argocd-redis",
		"git@git.example.com:x.git":                "git@git.example.com:x.git",
		"argocd_agent_connected 1":                 "argocd_agent_connected 1",
	} {
		if got := redactText(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestRedactObject_KeepsListedFields(t *testing.T) {
	object := map[string]any{"kind": "Thing", "metadata": map[string]any{"name": "a", "managedFields": "planted", "annotations": map[string]any{"x": "planted"}},
		"spec": map[string]any{"list": []any{map[string]any{"keep": "1", "drop": "planted"}, "planted"}, "other": "planted", "whole": map[string]any{"a": "b"}}}
	got := fmt.Sprint(redactObject(object, mask("spec.list.keep", "spec.whole", "spec.absent")))
	if want := "map[metadata:map[annotations:map[x:7 bytes] name:a] spec:map[list:[map[keep:1] <nil>] whole:map[a:b]]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Secrets are planted in objects, settings, logs and metrics. None may be in the archive.
func TestSysdump_HasNoSecrets(t *testing.T) {
	s, l := inLab(t, "cli-sysdump")
	spoke := l.Cluster("managed")
	s.commands["apply"]("managed sysdump.yaml")
	address := s.localAddress(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "ok objects\nsome_metric{repo=\"https://x:planted-metric@git.example.com\"} 1\n# %s\n", r.URL.Path)
	})
	var ports [2]string // health and metrics
	for i := range ports {
		server := httptest.NewUnstartedServer(handler)
		server.Listener = s.listen(t, address)
		server.Start()
		t.Cleanup(server.Close)
		_, ports[i], _ = net.SplitHostPort(server.Listener.Addr().String())
	}
	dumpPod(t, spoke, "served", "schedulingGates: [{name: example.com/never}]", ports)
	patch(t, spoke, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "cli-sysdump", "served", `{"status":{"phase":"Running","podIP":"`+address+`","podIPs":[{"ip":"`+address+`"}]}}`, "status")
	dumpPod(t, spoke, "logging", "tolerations: [{operator: Exists}]", ports)
	lab.Await(t, "the pod to run", func(ctx context.Context) error {
		pod, err := spoke.Client().CoreV1().Pods("cli-sysdump").Get(ctx, "logging", metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = errors.New(string(pod.Status.Phase))
		}
		return err
	})
	if err := spoke.LogInPods("connecting with password=planted-log and Bearer planted-bearer"); err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "dump.tar.gz")
	s.now = time.Now
	if out := s.run("sysdump", "--file", file); !strings.HasPrefix(out, "Wrote "+file) {
		t.Fatal(out)
	}
	files := unpack(t, file)
	for name, content := range files {
		if at := strings.Index(content, "planted"); at >= 0 {
			t.Errorf("%s has a secret: %s", name, content[max(0, at-80):min(len(content), at+40)])
		}
	}
	const side = "argocd-agent-sysdump/workload-cluster/"
	for name, want := range map[string]string{ // otherwise the search above proves nothing
		"objects/applications.yaml":      "repoURL: https://REDACTED@git.example.com/web.git",
		"objects/appprojects.yaml":       "https://REDACTED@git.example.com/*",
		"objects/deployments.yaml":       "--redis-password=REDACTED",
		"objects/configmaps.yaml":        "dex.config: 25 bytes",
		"objects/events.yaml":            "token=REDACTED",
		"objects/secret-names.txt":       "argocd-agent-ca\t",
		"settings.yaml":                  "ARGOCD_AGENT_REMOTE_SERVER: hub.example.com",
		"doctor.json":                    `"check": "api server"`,
		"pods/logging/log.txt":           "password=REDACTED and Bearer REDACTED",
		"pods/served/metrics.txt":        `some_metric{repo="https://REDACTED@git.example.com"} 1`,
		"pods/served/health.txt":         "# /healthz",
		"../problems.txt":                "pods/logging/profiles: ",
		"../hub/doctor.json":             `"check": "api server"`,
		"../hub/objects/agents.yaml":     "",
		"../hub/objects/configmaps.yaml": "",
	} {
		if content, there := files[filepath.Join(side, name)]; !there || !strings.Contains(content, want) {
			t.Errorf("%s (there: %v) lacks %q:\n%.2000s", name, there, want, content)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("other users can read the archive: %v, %v", info.Mode(), err)
	}
	if out := s.run("sysdump", "--file", file); !strings.Contains(out, "file exists") {
		t.Errorf("an existing file is overwritten: %s", out)
	}
}

// dumpPod creates a pod with our labels.
func dumpPod(t *testing.T, c *lab.Cluster, name, spec string, ports [2]string) {
	t.Helper()
	lab.Await(t, "a pod", func(ctx context.Context) error {
		return c.Apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: cli-sysdump, labels: {app.kubernetes.io/part-of: argocd-agent, app.kubernetes.io/component: agent}}
spec:
  %s
  containers: [{name: main, image: example.com/none, env: [{name: API_TOKEN, value: planted-pod}],
    ports: [{name: healthz, containerPort: %s}, {name: metrics, containerPort: %s}]}]
`, name, spec, ports[0], ports[1]))
	})
}

func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	zipped, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// watcherRole may list and watch the Agents of one namespace.
const watcherRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: fleet-watcher, namespace: cli-fleet}
rules:
  - {apiGroups: [argocd-agent.argoproj-labs.io], resources: [agents], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: fleet-watcher, namespace: cli-fleet}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: fleet-watcher}
subjects: [{kind: User, name: watcher}]
`

// kubeconfigAs writes a kubeconfig for a cluster at an address that impersonates a user.
func kubeconfigAs(t *testing.T, c *lab.Cluster, addr, user string, groups ...string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	context := config.Contexts[config.CurrentContext]
	config.Clusters[context.Cluster].Server = "https://" + addr
	config.AuthInfos[context.AuthInfo].Impersonate = user
	config.AuthInfos[context.AuthInfo].ImpersonateGroups = groups
	config.Contexts = map[string]*api.Context{"hub": context}
	config.CurrentContext = "hub"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// fleetPage applies the events of the stream like the page.
type fleetPage struct {
	Reset   bool
	Rows    []agentrows.Row
	Deleted []string
	Stale   string
	all     map[string]agentrows.Row
}

// until reads the stream until a condition holds.
func (s *fleetPage) until(t *testing.T, from *bufio.Scanner, what string, is func() bool) {
	t.Helper()
	for from.Scan() {
		data, ok := strings.CutPrefix(from.Text(), "data: ")
		if !ok {
			continue
		}
		s.Reset, s.Rows, s.Deleted, s.Stale = false, nil, nil, ""
		if err := json.Unmarshal([]byte(data), s); err != nil {
			t.Fatal(err)
		}
		if s.Reset {
			s.all = map[string]agentrows.Row{}
		}
		for _, r := range s.Rows {
			s.all[r.Name] = r
		}
		for _, name := range s.Deleted {
			delete(s.all, name)
		}
		if is() {
			return
		}
	}
	t.Fatalf("the page never shows %s: %v, it has %+v", what, from.Err(), s.all)
}

func TestFleet_PageShowsChanges(t *testing.T) {
	s, l := inLab(t, "cli-fleet")
	hub := l.Hub()
	if err := hub.Apply(t.Context(), watcherRole); err != nil {
		t.Fatal(err)
	}
	link, err := l.Link(strings.TrimPrefix(hub.Server, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	s.run("agent", "create", "w1", "--mode", "managed")
	s.run("agent", "create", "w2", "--mode", "autonomous")
	env := s.env
	if out := s.run("fleet", "--kubeconfig", kubeconfigAs(t, hub, link.Addr(), "stranger")); !strings.Contains(out, "forbidden") || !strings.Contains(out, "[exit code 1]") {
		t.Errorf("without permission: %q", out)
	}
	if out := s.run("fleet", "--port", "70000"); !strings.Contains(out, "[exit code 2]") {
		t.Errorf("invalid port: %q", out)
	}

	ctx, end := context.WithCancel(t.Context())
	defer end()
	stdout, stderr := &syncBuffer{}, &syncBuffer{}
	p := &Program{Env: env, Stdout: stdout, Stderr: stderr, Now: time.Now}
	ended := make(chan int, 1)
	go func() {
		ended <- p.Run(ctx, []string{"fleet", "--kubeconfig", kubeconfigAs(t, hub, link.Addr(), "watcher")})
	}()
	lab.Await(t, "the URL", func(context.Context) error {
		if !strings.HasSuffix(stdout.String(), "/\n") {
			return fmt.Errorf("%q, %q", stdout.String(), stderr.String())
		}
		return nil
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSpace(stdout.String())+"v1/agents/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	stream, page := bufio.NewScanner(response.Body), &fleetPage{}
	stream.Buffer(nil, 1<<20)

	page.until(t, stream, "existing agents", func() bool { return len(page.all) == 2 && page.all["w1"].State == "never-connected" })
	patch(t, hub, agentResource, "cli-fleet", "w1", `{"status": {"connected": true, "applications": 7, "diverged": 2, "since": "2026-03-01T10:00:00Z"}}`, "status")
	page.until(t, stream, "a change", func() bool {
		return page.all["w1"].State == "connected" && page.all["w1"].Diverged == 2 && len(page.Rows) == 1 && page.all["w1"].Since != 0
	})
	s.run("agent", "create", "w3")
	page.until(t, stream, "a new agent", func() bool { return len(page.all) == 3 })
	if err := hub.Dynamic().Resource(agentResource).Namespace("cli-fleet").Delete(t.Context(), "w2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	page.until(t, stream, "a deletion", func() bool { return len(page.all) == 2 && len(page.Deleted) == 1 })

	if err := link.Cut(faultproxy.Refuse); err != nil {
		t.Fatal(err)
	}
	page.until(t, stream, "that the hub is unreachable", func() bool { return page.Stale != "" })
	s.run("agent", "create", "w4")
	patch(t, hub, agentResource, "cli-fleet", "w3", `{"status": {"connected": true, "applications": 1, "diverged": 0}}`, "status")
	if err := link.Restore(); err != nil {
		t.Fatal(err)
	}
	page.until(t, stream, "the changes during the outage", func() bool {
		return page.Stale == "" && page.all["w4"].Name != "" && page.all["w3"].State == "connected"
	})
	end()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
	if strings.Count(stdout.String(), "\n") != 1 {
		t.Errorf("stdout has more than the URL: %q", stdout.String())
	}
}

func TestCommandPrefix_SelectsSameHub(t *testing.T) {
	p := &Program{Now: time.Now}
	root := p.root()
	if err := root.ParseFlags([]string{"--principal-context", "it's $HOME", "--principal-namespace", "argocd"}); err != nil {
		t.Fatal(err)
	}
	if got, want := p.commandPrefix(), `argocd-agentctl --principal-context 'it'\''s $HOME' --principal-namespace argocd`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

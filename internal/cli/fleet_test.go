package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/cli/fleet"
	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// watcher may look at the Agents of one namespace and do nothing else anywhere.
const watcher = `
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

// kubeconfigAs writes a kubeconfig that leads to a cluster by way of a link, as somebody.
func kubeconfigAs(t *testing.T, c *lab.Cluster, addr, user string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	context := config.Contexts[config.CurrentContext]
	config.Clusters[context.Cluster].Server = "https://" + addr
	config.AuthInfos[context.AuthInfo].Impersonate = user
	config.Contexts = map[string]*api.Context{"hub": context}
	config.CurrentContext = "hub"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// fleetPage is what a page knows.
type fleetPage struct {
	Reset   bool
	Rows    []fleet.Row
	Gone    []string
	Trouble string
	all     map[string]fleet.Row
}

// until reads a stream until the page shows something.
func (s *fleetPage) until(t *testing.T, from *bufio.Scanner, what string, is func() bool) {
	t.Helper()
	for from.Scan() {
		data, ok := strings.CutPrefix(from.Text(), "data: ")
		if !ok {
			continue
		}
		s.Reset, s.Rows, s.Gone, s.Trouble = false, nil, nil, ""
		if err := json.Unmarshal([]byte(data), s); err != nil {
			t.Fatal(err)
		}
		if s.Reset {
			s.all = map[string]fleet.Row{}
		}
		for _, r := range s.Rows {
			s.all[r.Name] = r
		}
		for _, name := range s.Gone {
			delete(s.all, name)
		}
		if is() {
			return
		}
	}
	t.Fatalf("the page never shows %s: %v, and it has %+v", what, from.Err(), s.all)
}

func TestFleetPageFollowsTheHub(t *testing.T) {
	s, l := inLab(t, "cli-fleet")
	hub := l.Hub()
	if err := hub.Apply(t.Context(), watcher); err != nil {
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
	if out := s.run("fleet", "--kubeconfig", kubeconfigAs(t, hub, link.Addr(), "nobody")); !strings.Contains(out, "forbidden") || !strings.Contains(out, "[exit code 1]") {
		t.Errorf("who may not look is told %q", out)
	}
	if out := s.run("fleet", "--port", "70000"); !strings.Contains(out, "[exit code 2]") {
		t.Errorf("a wrong port: %q", out)
	}

	ctx, end := context.WithCancel(t.Context())
	defer end()
	screen, asides := &shared{}, &shared{}
	p := &Program{Env: env, Stdout: screen, Stderr: asides, Now: time.Now}
	ended := make(chan int, 1)
	go func() {
		ended <- p.Run(ctx, []string{"fleet", "--kubeconfig", kubeconfigAs(t, hub, link.Addr(), "watcher")})
	}()
	lab.Await(t, "the address", func(context.Context) error {
		if !strings.HasSuffix(screen.String(), "/\n") {
			return fmt.Errorf("%q, %q", screen.String(), asides.String())
		}
		return nil
	})
	ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSpace(screen.String())+"events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	stream, page := bufio.NewScanner(answer.Body), &fleetPage{}
	stream.Buffer(nil, 1<<20)

	page.until(t, stream, "what was there", func() bool { return len(page.all) == 2 && page.all["w1"].State == "never" })
	patch(t, hub, agentResource, "cli-fleet", "w1", `{"status": {"connected": true, "applications": 7, "diverged": 2, "since": "2026-03-01T10:00:00Z"}}`, "status")
	page.until(t, stream, "a change", func() bool {
		return page.all["w1"].State == "connected" && page.all["w1"].Diverged == 2 && len(page.Rows) == 1 && page.all["w1"].Since != 0
	})
	s.run("agent", "create", "w3")
	page.until(t, stream, "a new one", func() bool { return len(page.all) == 3 })
	if err := hub.Dynamic().Resource(agentResource).Namespace("cli-fleet").Delete(t.Context(), "w2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	page.until(t, stream, "an end", func() bool { return len(page.all) == 2 && len(page.Gone) == 1 })

	if err := link.Cut(faultproxy.Refuse); err != nil {
		t.Fatal(err)
	}
	page.until(t, stream, "that the hub is away", func() bool { return page.Trouble != "" })
	s.run("agent", "create", "w4") // meanwhile
	patch(t, hub, agentResource, "cli-fleet", "w3", `{"status": {"connected": true, "applications": 1, "diverged": 0}}`, "status")
	if err := link.Restore(); err != nil {
		t.Fatal(err)
	}
	page.until(t, stream, "what has happened meanwhile", func() bool {
		return page.Trouble == "" && page.all["w4"].Name != "" && page.all["w3"].State == "connected"
	})
	end()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d, %q", code, asides.String())
	}
	if strings.Count(screen.String(), "\n") != 1 {
		t.Errorf("beside the address it prints %q", screen.String())
	}
}

func TestRowsTellWhatAgentsAre(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: today.Add(d)} }
	agent := v1alpha1.Agent{Spec: v1alpha1.Spec{Mode: "managed", Namespace: "ns", Mapping: "destination", Cluster: v1alpha1.ClusterSecret{Labels: map[string]string{"env": "prod"}}}}
	agent.Name = "w1"
	agent.Status = v1alpha1.Status{Since: at(-time.Hour), Certificate: &v1alpha1.Certificate{Fingerprint: "AB", Expires: at(time.Hour)}, Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse, Reason: "WrongCluster", Message: "another one, confirm=not-a-hold"},
	}, Holds: []v1alpha1.Hold{{ID: "cluster-5", Reason: "another cluster"}, {ID: "5f2c", Scope: "application", Count: 9, Reason: "restored"}},
		Diverged: 4, Pending: &v1alpha1.Pending{Deliveries: 1, Deletions: 3}}
	r := rowOf(&agent)
	if want := []fleet.Held{{What: "another cluster", Why: "confirmation required", ID: "cluster-5"}, {What: "9 deletions of application", Why: "restored", ID: "5f2c"}}; !slices.Equal(r.Held, want) {
		t.Errorf("held: %+v", r.Held)
	}
	if r.Pending != "1 undelivered item, 3 undelivered deletions" {
		t.Errorf("pending: %q", r.Pending)
	}
	if !strings.Contains(r.Refused, "another one") || r.Expires != today.Add(time.Hour).Unix() || r.Labels != "env=prod" || r.Namespace != "ns" {
		t.Errorf("%+v", r)
	}
	// A certificate that it was given since counts.
	agent.Annotations = map[string]string{v1alpha1.IssuedAnnotation: "AB/nonsense CD/" + today.Add(48*time.Hour).Format(time.RFC3339) + " EF/" + today.Add(2*time.Hour).Format(time.RFC3339)}
	if r := rowOf(&agent); r.Expires != today.Add(48*time.Hour).Unix() {
		t.Errorf("expires %d", r.Expires)
	}
	for reason, want := range map[string]bool{"Suspended": false, "PrincipalLost": false, "Revoked": true, "WrongProtocol": true, "Unavailable": false} {
		agent.Status.Conditions[0].Reason = reason
		if got := rowOf(&agent).Refused != ""; got != want {
			t.Errorf("%s: refused is %v", reason, got)
		}
	}
}

func TestCommandsOnThePageAreForTheSameHub(t *testing.T) {
	p := &Program{Now: time.Now}
	root := p.root()
	if err := root.ParseFlags([]string{"--principal-context", "it's $HOME", "--principal-namespace", "argocd"}); err != nil {
		t.Fatal(err)
	}
	if got, want := p.sameHub(), `argocd-agentctl --principal-context 'it'\''s $HOME' --principal-namespace argocd`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

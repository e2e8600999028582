package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/lab"
)

func TestTop_FitsScreenAndShowsUrgentAgentsFirst(t *testing.T) {
	p := &Program{Now: func() time.Time { return today }, Screen: Screen{Terminal: true}}
	agent := func(name string, change func(*v1alpha1.Agent)) v1alpha1.Agent {
		a := v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.Spec{Mode: "managed"}}
		a.Status = v1alpha1.Status{Connected: true, Since: &metav1.Time{Time: today.Add(-time.Hour)}, ClusterUID: "x", Applications: 10, Version: "v1.2.3"}
		if change != nil {
			change(&a)
		}
		return a
	}
	all := []v1alpha1.Agent{
		agent("a-fine", nil), agent("b-suspended", func(a *v1alpha1.Agent) { a.Spec.Suspended, a.Status.Connected = true, false }),
		agent("c-diverged", func(a *v1alpha1.Agent) { a.Status.Diverged = 3 }), agent("d-disconnected", func(a *v1alpha1.Agent) { a.Status.Connected = false }),
		agent("e-held", func(a *v1alpha1.Agent) {
			a.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionHeld, Status: metav1.ConditionTrue}}
		}),
	}
	for i := range 20 {
		all = append(all, agent(fmt.Sprintf("f-%02d", i), nil))
	}
	var got strings.Builder
	for _, size := range [][2]int{{100, 14}, {40, 8}} {
		fmt.Fprintf(&got, "# %d columns, %d lines\n%s\n\n", size[0], size[1], p.fleet(all, "the hub (context hub, namespace argocd)", "", size[0], size[1]))
	}
	fmt.Fprintf(&got, "# stale\n%s\n", p.fleet(nil, "the hub (context hub, namespace argocd)", "connection refused", 60, 10))
	text := strings.ReplaceAll(got.String(), "\x1b", "^[")
	checkGolden(t, "top.txt", text)
	for _, frame := range strings.Split(text, "# ")[1:3] {
		var columns, lines int
		if _, err := fmt.Sscanf(frame, "%d columns, %d lines", &columns, &lines); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(strings.TrimSpace(frame), "\n"); n > lines {
			t.Errorf("a screen of %d lines has %d", lines, n)
		}
	}
}

// syncBuffer is a buffer for concurrent use.
type syncBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

func TestTop_ShowsChanges(t *testing.T) {
	s, l := inLab(t, "cli-top")
	if out := s.run("agent", "create", "w1", "--mode", "managed"); !strings.Contains(out, "created") {
		t.Fatal(out)
	}
	if out := s.run("top"); !strings.Contains(out, "w1") || strings.Contains(out, "\x1b") {
		t.Errorf("in a pipe, want a table: %q", out)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	screen := &syncBuffer{}
	p := &Program{Env: s.env, Stdout: screen, Stderr: screen, Now: time.Now,
		Screen: Screen{Terminal: true, Width: func() int { return 100 }, Height: func() int { return 20 }}}
	ended := make(chan int, 1)
	go func() { ended <- p.Run(ctx, []string{"top"}) }()
	shows := func(text string) {
		t.Helper()
		lab.Await(t, text+" on the screen", func(context.Context) error {
			if !strings.Contains(screen.String(), text) {
				return fmt.Errorf("screen is %q", screen.String())
			}
			return nil
		})
	}
	shows("1 never-connected")
	patch(t, l.Hub(), agentResource, "cli-top", "w1", `{"status": {"connected": true, "applications": 7, "diverged": 0}}`, "status")
	shows("1 connected, 7 Applications")
	if out := s.run("agent", "create", "w2"); !strings.Contains(out, "created") {
		t.Fatal(out)
	}
	shows("2 agents")
	end()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !strings.HasSuffix(screen.String(), "\x1b[?25h\x1b[?1049l") {
		t.Error("the terminal is not restored")
	}
}

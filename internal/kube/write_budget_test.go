package kube

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func TestWriteBudget_DelaysOnlyTheAgentThatUsedItUp(t *testing.T) {
	b := writeBudget{interval: time.Second, burst: 10}
	now := time.Unix(1000, 0)
	for i := range 10 {
		if d := b.charge("flood", 0, now); d != 0 {
			t.Fatalf("write %d is delayed by %v", i, d)
		}
	}
	if d := b.charge("flood", 3*writeUnitBytes, now); d != 4*time.Second {
		t.Errorf("a write of four units is delayed by %v", d)
	}
	if d := b.charge("w1", 0, now); d != 0 {
		t.Errorf("another agent is delayed by %v", d)
	}
	if d := b.charge("", 1<<30, now); d != 0 {
		t.Errorf("a write without an agent is delayed by %v", d)
	}
	now = now.Add(5 * time.Second)
	if d := b.charge("flood", 0, now); d != 0 {
		t.Errorf("after the delay, a write is delayed by %v", d)
	}
	now = now.Add(time.Hour)
	for i := range 2 * maxBudgets {
		b.charge(fmt.Sprint(i), 0, now.Add(time.Duration(i)*time.Minute))
	}
	if len(b.full) > maxBudgets {
		t.Errorf("%d budgets are stored", len(b.full))
	}
}

// With many active agents, the cost of a write does not grow with their number.
func TestWriteBudget_ManyActiveAgents(t *testing.T) {
	b := writeBudget{interval: time.Hour, burst: 10}
	now := time.Unix(1000, 0)
	for i := range 8 * maxBudgets {
		b.charge(fmt.Sprint(i), 0, now)
	}
	if len(b.full) != 8*maxBudgets || b.sweepAt < len(b.full) {
		t.Errorf("%d budgets, the next sweep is at %d", len(b.full), b.sweepAt)
	}
	now = now.Add(2 * time.Hour)
	for i := range 9 * maxBudgets {
		b.charge(fmt.Sprint("later", i), 0, now)
	}
	if len(b.full) > 10*maxBudgets {
		t.Errorf("%d budgets are stored", len(b.full))
	}
}

// acceptsAll is an API server that accepts every write at once.
type acceptsAll struct{}

func (acceptsAll) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(project("a", "6"))), Request: r}, nil
}

func TestWriter_BudgetDelaysTheNextWritesOfTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewClient(&rest.Config{Host: "http://memory", Transport: acceptsAll{}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		took := map[uint64]time.Duration{}
		w := NewWriter(c, func(_ context.Context, in reconcile.Input) error {
			took[in.(reconcile.WriteResult).ID] = time.Since(began).Round(time.Millisecond)
			return nil
		}, NamespacePolicy{}, 4, unhurried, slog.New(slog.DiscardHandler))
		w.queue.perAgent, w.budget = 1, writeBudget{interval: time.Second, burst: 2}
		o, err := kind.Parse([]byte(project("a", "5")))
		if err != nil {
			t.Fatal(err)
		}
		for id := range uint64(6) {
			agent := "flood"
			if id == 5 {
				agent = "w1"
			}
			w.Write(ctx, reconcile.Write{ID: id, Verb: reconcile.Update, Ref: kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "a"}, Object: o, Agent: agent})
			synctest.Wait()
		}
		if took[5] != 0 || len(took) != 4 {
			t.Errorf("at once: %v", took)
		}
		time.Sleep(time.Minute)
		for id, want := range map[uint64]time.Duration{0: 0, 1: 0, 2: 0, 3: time.Second, 4: 2 * time.Second, 5: 0} {
			if got, ok := took[id]; !ok || got != want {
				t.Errorf("write %d ends after %v, %v", id, got, ok)
			}
		}
		cancel()
		w.Wait()
	})
}

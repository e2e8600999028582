package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/fleet/memcluster"
)

// The Argo CD application controller compares each Application this often, and the hub is updated this seldom. Both are
// slightly shorter than the design to allow for the duration of a write.
const (
	compareEvery = 2 * time.Minute
	hearEvery    = 10*time.Minute - 5*time.Second
)

// churning changes the fields that the Argo CD application controller changes at every comparison: once for each
// Application, or for the configured duration.
func (b *bench) churning(ctx context.Context) error {
	all := b.agents * b.apps
	writes, began := b.hub.writes.Load(), time.Now()
	if b.churn == 0 {
		for i := range all {
			if err := b.compared(i); err != nil {
				return err
			}
		}
		pause(ctx, 15*time.Second)
		b.AtMost(1, fmt.Sprintf("reconciledAt of %d Applications moves: writes on the hub for each, within 15 s", all), float64(b.hub.writes.Load()-writes)/float64(all), "")
		return nil
	}
	log := newWriteLog()
	b.hub.observe(log.saw)
	defer b.hub.observe(nil)
	for moved := 0; time.Since(began) < b.churn && ctx.Err() == nil; pause(ctx, 20*time.Millisecond) {
		for due := int(float64(all) * float64(time.Since(began)) / float64(compareEvery)); moved < due; moved++ {
			if err := b.compared(moved % all); err != nil {
				return err
			}
		}
	}
	what := fmt.Sprintf("reconciledAt of %d Applications moves every %v for %v: ", all, compareEvery, b.churn)
	b.AtMost(1, what+"most writes of one on the hub within 10 minutes", float64(log.most(hearEvery)), "")
	span := time.Since(began)
	b.AtMost(float64(all)/(10*time.Minute).Seconds(), what+"writes on the hub", float64(b.hub.writes.Load()-writes)/span.Seconds(), "/s")
	b.Add(what+"moves", float64(all)/compareEvery.Seconds(), "/s")
	return nil
}

// compared updates reconciledAt of an Application.
func (b *bench) compared(i int) error {
	return b.fleet.members[i/b.apps].cluster.Patch(memcluster.Applications, argocd, appName(i%b.apps),
		map[string]any{"status": map[string]any{"reconciledAt": time.Now().UTC().Format(time.RFC3339)}})
}

// writeLog records the times of writes per object.
type writeLog struct {
	mu    sync.Mutex
	times map[string][]time.Time
}

func newWriteLog() *writeLog { return &writeLog{times: map[string][]time.Time{}} }

func (l *writeLog) saw(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times[name] = append(l.times[name], time.Now())
}

// most returns the maximum number of writes of one object within a period.
func (l *writeLog) most(within time.Duration) (most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, times := range l.times {
		first := 0
		for i, at := range times {
			for at.Sub(times[first]) >= within {
				first++
			}
			most = max(most, i-first+1)
		}
	}
	return most
}

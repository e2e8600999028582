package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// latencyTracker measures the time from a write on one side to its observation on the other. Every change has a number.
// A change that is overtaken by a later change of the same object counts as arrived with the later one.
type latencyTracker struct {
	mu      sync.Mutex
	sent    map[string][]sent // object → changes that have not arrived, oldest first
	waiting int
	took    []time.Duration
	changed chan struct{}
}

type sent struct {
	number int
	at     time.Time
}

func newLatencyTracker() *latencyTracker {
	return &latencyTracker{sent: map[string][]sent{}, changed: make(chan struct{})}
}

// text returns the form of a number in an object.
func text(number int) string { return "n" + strconv.Itoa(number) }

// expect records that a number will be written to an object.
func (m *latencyTracker) expect(object string, number int, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent[object] = append(m.sent[object], sent{number, at})
	m.waiting++
}

// saw records the observed text of an object.
func (m *latencyTracker) saw(object, says string) {
	digits, ok := strings.CutPrefix(says, "n")
	number, err := strconv.Atoi(digits)
	if !ok || err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.sent[object]
	n := 0
	for n < len(list) && list[n].number <= number {
		m.took = append(m.took, time.Since(list[n].at))
		n++
	}
	if n == 0 {
		return
	}
	if m.sent[object] = list[n:]; n == len(list) {
		delete(m.sent, object)
	}
	if m.waiting -= n; m.waiting == 0 {
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

// arrived waits until everything has arrived, and returns the sorted latencies since the last call.
func (m *latencyTracker) arrived(ctx context.Context, patience time.Duration) ([]time.Duration, error) {
	if err := m.wait(ctx, patience); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	took := m.took
	m.took = nil
	slices.Sort(took)
	return took, nil
}

// wait waits until everything has arrived.
func (m *latencyTracker) wait(ctx context.Context, patience time.Duration) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		m.mu.Lock()
		waiting, changed := m.waiting, m.changed
		m.mu.Unlock()
		if waiting == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
			return fmt.Errorf("%d changes have not arrived within %v", waiting, patience)
		}
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

package main

import (
	"context"
	"math"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/report"
)

func TestLatencyTracker_OvertakenChangeCountsWithLaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newLatencyTracker()
		m.expect("a", 1, time.Now())
		time.Sleep(time.Second)
		m.expect("a", 2, time.Now())
		m.expect("b", 3, time.Now())
		time.Sleep(time.Second)
		m.saw("a", "n2")
		m.saw("a", "n2") // a repeated observation does not count
		m.saw("b", "something else")
		if err := m.wait(t.Context(), time.Minute); err == nil {
			t.Error("b has not arrived")
		}
		m.saw("b", text(3))
		took, err := m.arrived(t.Context(), time.Minute)
		want := []time.Duration{time.Second, 2 * time.Second, 61 * time.Second}
		if err != nil || !slices.Equal(took, want) {
			t.Errorf("took %v, %v", took, err)
		}
	})
}

func TestMaxWrites_WithinPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newWriteLog()
		for i := range 6 {
			l.saw("often") // at 0, 4, 8 … minutes
			if i%3 == 0 {
				l.saw("seldom")
			}
			time.Sleep(4 * time.Minute)
		}
		for within, want := range map[time.Duration]int{time.Minute: 1, 4 * time.Minute: 1, 5 * time.Minute: 2, 10 * time.Minute: 3, time.Hour: 6} {
			if got := l.most(within); got != want {
				t.Errorf("within %v: %d instead of %d", within, got, want)
			}
		}
	})
}

func TestGrowth_SkipsFirstQuarter(t *testing.T) {
	flat := []float64{1, 5, 10, 10, 10, 10, 10, 10, 10, 11, 10, 10}
	if got := growth(flat); got < 0.99 || got > 1.01 {
		t.Errorf("flat after a rise in the beginning: %v", got)
	}
	var leak []float64
	for i := range 100 {
		leak = append(leak, 100+float64(i))
	}
	if got := growth(leak); got < 1.3 {
		t.Errorf("a leak: %v", got)
	}
	if got := growth([]float64{1, 2}); got != 2 {
		t.Errorf("of two samples: %v", got)
	}
}

func TestSettings(t *testing.T) {
	good := settings{agents: 1, principals: 1, apps: 1, runs: 1}
	for name, c := range map[string]struct {
		s    settings
		ok   bool
		does []string
	}{
		"all but what takes long": {good, true, []string{"cold", "killed"}},
		"one part":                {settings{agents: 1, principals: 1, apps: 1, runs: 1, only: "stuck,outage"}, true, []string{"stuck", "outage"}},
		"no such part":            {settings{agents: 1, principals: 1, apps: 1, runs: 1, only: "nonsense"}, false, nil},
		"no principals":           {settings{agents: 1, apps: 1, runs: 1}, false, nil},
		"no agents":               {settings{principals: 1, apps: 1, runs: 1}, false, nil},
		"a share of two":          {settings{agents: 1, principals: 1, apps: 1, runs: 1, autonomous: 2}, false, nil},
	} {
		if err := c.s.check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range c.does {
			if !c.s.wants(part) {
				t.Errorf("%s: %s is left out", name, part)
			}
		}
	}
	if good.wants("outage") || good.wants("principals") || (settings{only: "cold"}).wants("rest") {
		t.Error("more is done than was asked for")
	}
}

func TestParallel_StopsAtFirstFailure(t *testing.T) {
	if err := parallel(100, func(i int) error {
		if i == 50 {
			return context.Canceled
		}
		return nil
	}); err == nil {
		t.Error("a failure was lost")
	}
}

func TestDeferGC_LimitIsAboveCurrentUse(t *testing.T) {
	for _, c := range []struct{ used, free, want int64 }{{8, 4, 10}, {0, 4, 2}, {8, 0, 8}, {math.MaxInt64, math.MaxInt64, math.MaxInt64}} {
		if got := limitWithHalfOf(c.used, c.free); got != c.want {
			t.Errorf("of %d, with %d free: %d, want %d", c.used, c.free, got, c.want)
		}
	}
	if used := usedMemory(); used < 1<<20 || used > 1<<40 {
		t.Errorf("this process has %d bytes", used)
	}
	limit, before := debug.SetMemoryLimit(-1), debug.SetGCPercent(garbage)
	defer debug.SetGCPercent(before)
	end := deferGC()
	room := debug.SetMemoryLimit(-1) - usedMemory()
	percent := debug.SetGCPercent(-1)
	end()
	if room <= 0 || percent != -1 {
		t.Errorf("there is room for %d bytes, and the collector is at %d", room, percent)
	}
	if debug.SetMemoryLimit(-1) != limit || debug.SetGCPercent(garbage) != garbage {
		t.Error("it stays so")
	}
}

func TestSessions_MeasuresTheInMemoryTransport(t *testing.T) {
	b := &bench{settings: settings{agents: 20}, Report: &report.Report{}}
	if err := b.sessions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(b.Figures) != 2 || b.Figures[0].Value <= 0 {
		t.Errorf("figures %+v", b.Figures)
	}
}

func TestReplicas_Targets(t *testing.T) {
	for agents, want := range map[int]time.Duration{60: 5 * time.Minute, 1000: 5 * time.Minute, 1001: 10 * time.Minute, 10_000: 10 * time.Minute} {
		if got := spreadTarget(agents); got != want {
			t.Errorf("%d agents: spread within %v, want %v", agents, got, want)
		}
	}
	for _, c := range []struct {
		agents, sessions int
		perSecond        float64
		want             time.Duration
	}{{1000, 330, 1, 30 * time.Second}, {10_000, 2500, 125, 50 * time.Second}, {10_000, 2500, 500, 35 * time.Second}, {10_000, 2500, 0, 30 * time.Second},
		{10_000, 2070, 103.5, 50 * time.Second}, {10_000, 2070, 50, 50 * time.Second}, {10_000, 2070, 1, 50 * time.Second}} {
		if got, from := returnTarget(c.agents, c.sessions, c.perSecond); got != c.want || from == "" {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// The tolerance is that of fleet.Spreader.
func TestReplicas_AreSpread(t *testing.T) {
	for _, c := range []struct {
		counts []float64
		want   bool
	}{
		{[]float64{366, 300, 334}, true}, {[]float64{367, 367, 266}, true}, {[]float64{368, 300, 332}, false},
		{[]float64{31, 29}, true}, {[]float64{34, 26}, false}, {[]float64{1, 2}, true}, {[]float64{3, 0}, true}, {[]float64{4, 0}, false},
		{[]float64{3, 3, 3}, true},
	} {
		agents := 0
		for _, n := range c.counts {
			agents += int(n)
		}
		if got := areSpread(c.counts, agents); got != c.want {
			t.Errorf("%v of %d agents: %v", c.counts, agents, got)
		}
		if areSpread(c.counts, agents+1) {
			t.Errorf("%v: one agent is not connected", c.counts)
		}
	}
}

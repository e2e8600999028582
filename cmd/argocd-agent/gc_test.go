package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestTuneGC_RespectsContainerLimit(t *testing.T) {
	files := map[string]string{"max": "max\n", "old": "9223372036854771712\n", "half": "536870912\n"}
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	const none = math.MaxInt64
	for _, tc := range []struct {
		what    string
		env     []string
		files   []string
		percent int
		limit   int64
	}{
		{"a limit", nil, []string{"missing", "half"}, gcPercentBusy, 483183820},
		{"no limit in both forms", nil, []string{"max", "old"}, gcPercentBusy, none},
		{"no container", nil, []string{"missing"}, gcPercentBusy, none},
		{"settings of the environment", []string{"GOGC=200", "GOMEMLIMIT=1GiB"}, []string{"half"}, 100, none},
		{"empty variables", []string{"GOGC=", "GOMEMLIMIT="}, []string{"half"}, gcPercentBusy, 483183820},
	} {
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(none)
		var at []string
		for _, name := range tc.files {
			at = append(at, filepath.Join(dir, name))
		}
		tuneGC(tc.env, at)()
		if got := debug.SetGCPercent(100); got != tc.percent {
			t.Errorf("%s: collects at %d %% instead of %d %%", tc.what, got, tc.percent)
		}
		if got := debug.SetMemoryLimit(-1); got != tc.limit {
			t.Errorf("%s: limit %d instead of %d", tc.what, got, tc.limit)
		}
	}
}

func TestGCTuner_CollectsOftenOnlyWhenIdle(t *testing.T) {
	var tuner gcTuner
	sum := uint64(0)
	for i, step := range []struct {
		more    uint64 // bytes allocated in this interval
		percent int
		changed bool
	}{
		{10 * idleAllocBytes, gcPercentBusy, false}, {idleAllocBytes + 1, gcPercentBusy, false}, {idleAllocBytes, gcPercentBusy, false}, {idleAllocBytes, gcPercentBusy, false}, {idleAllocBytes, gcPercentIdle, true},
		{1, gcPercentIdle, false}, {idleAllocBytes + 1, gcPercentBusy, true}, {0, gcPercentBusy, false}, {0, gcPercentBusy, false}, {0, gcPercentIdle, true},
	} {
		sum += step.more
		if percent, changed := tuner.next(sum); percent != step.percent || changed != step.changed {
			t.Errorf("step %d: %d %%, changed %v", i, percent, changed)
		}
	}
	if allocatedBytes() == 0 {
		t.Error("no allocations counted")
	}
}

func TestShareOfMemory_FollowsLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for limit, want := range map[int64]int{math.MaxInt64: 512, 1 << 40: 512, 1 << 30: 128, 512 << 20: 64, 1 << 20: 16} {
		if debug.SetMemoryLimit(limit); limit != math.MaxInt64 {
			debug.SetMemoryLimit(int64(memoryLimitShare * float64(limit)))
		}
		if got := eighthOfMemory(16<<20, 512<<20); (got+1<<19)>>20 != want {
			t.Errorf("limit %d: %d bytes, want %d MiB", limit, got, want)
		}
	}
}

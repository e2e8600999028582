package main

import (
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Target percentages of the garbage collector. Both components keep many long-lived objects. While idle they allocate
// little, so frequent collections cost little and halve the memory. Under load each collection would cost CPU time.
const (
	gcPercentBusy = 100
	gcPercentIdle = 25
	gcInterval    = 10 * time.Second
)

// A process is idle if it allocates at most idleAllocBytes in each of idleIntervals intervals. Collecting at the idle
// percentage costs about 8 ms per allocated MiB, which is at most two percent of a core.
const (
	idleIntervals  = 3
	idleAllocBytes = 25 << 20
)

// memoryLimitShare is the share of the container's memory limit at which the collector works harder. The rest is for
// memory that the Go runtime does not count.
const memoryLimitShare = 0.9

// cgroupLimitFiles contain the memory limit of the container, for cgroup v2 and v1.
var cgroupLimitFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// tuneGC adapts the garbage collector to the load until it is stopped. GOGC and GOMEMLIMIT in the environment override
// it.
func tuneGC(env, limitFiles []string) (stop func()) {
	if limit, ok := containerLimit(limitFiles); ok && !isSet(env, "GOMEMLIMIT") {
		debug.SetMemoryLimit(int64(memoryLimitShare * float64(limit)))
	}
	if isSet(env, "GOGC") {
		return func() {}
	}
	debug.SetGCPercent(gcPercentBusy)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(gcInterval)
		defer ticker.Stop()
		var tuner gcTuner
		for {
			select {
			case <-end:
				return
			case <-ticker.C:
				if percent, changed := tuner.next(allocatedBytes()); changed {
					debug.SetGCPercent(percent)
					if tuner.idle {
						debug.FreeOSMemory() // otherwise Go returns it slowly
						dropBinaryPages()
					}
				}
			}
		}
	}()
	return func() { close(end); <-ended }
}

// gcTuner chooses the percentage by the allocations of each interval.
type gcTuner struct {
	allocated uint64 // since the start, at the end of the last interval
	quiet     int    // number of consecutive intervals with few allocations
	idle      bool
}

// next must be called once per interval.
func (t *gcTuner) next(allocated uint64) (percent int, changed bool) {
	t.quiet++
	if allocated-t.allocated > idleAllocBytes {
		t.quiet = 0
	}
	idle := t.quiet >= idleIntervals
	changed = idle != t.idle
	t.allocated, t.idle = allocated, idle
	if idle {
		return gcPercentIdle, changed
	}
	return gcPercentBusy, changed
}

// allocatedBytes returns the number of heap bytes allocated since the start.
func allocatedBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// containerLimit returns the limit in the first file that has one. "max" and very large numbers mean no limit.
func containerLimit(files []string) (int64, bool) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && limit > 0 && limit < math.MaxInt64/2 {
			return limit, true
		}
	}
	return 0, false
}

// eighthOfMemory returns an eighth of the container's memory limit, within bounds. Without a limit, it returns the upper
// bound. tuneGC must have been called before.
func eighthOfMemory(lowest, highest int) int {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return highest
	}
	return int(min(max(float64(limit)/memoryLimitShare/8, float64(lowest)), float64(highest)))
}

func isSet(env []string, name string) bool {
	return slices.ContainsFunc(env, func(entry string) bool {
		value, ok := strings.CutPrefix(entry, name+"=")
		return ok && value != ""
	})
}

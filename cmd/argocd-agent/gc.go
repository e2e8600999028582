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

// How much garbage may lie about, in percent of what is in use, before it is
// collected. Go's own 100 means that a process reaches twice what it uses, and
// keeps it. Both programs hold much that stays (objects, sessions), and at rest
// make little that goes: then it costs next to nothing to collect often. Under
// load it would cost: each round looks at all that stays, and whatever is to be
// done meanwhile waits for a core.
const (
	gcPercentBusy = 100
	gcPercentIdle = 25
	memoryBeat    = 10 * time.Second
)

// memoryShare is the part of a container's limit at which the collector begins
// to work harder rather than let the container be killed. The rest is for what it
// does not count: the program itself, and the kernel's buffers.
const memoryShare = 0.9

// tuneGC sets the garbage collector by what the program is doing, until it is
// stopped. What the environment says goes first: GOGC and GOMEMLIMIT are Go's own.
func tuneGC(env, limits []string) (stop func()) {
	if limit, ok := containerLimit(limits); ok && !isSet(env, "GOMEMLIMIT") {
		debug.SetMemoryLimit(int64(memoryShare * float64(limit)))
	}
	if isSet(env, "GOGC") {
		return func() {}
	}
	debug.SetGCPercent(gcPercentBusy)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		beat := time.NewTicker(memoryBeat)
		defer beat.Stop()
		var pace garbagePace
		for {
			select {
			case <-end:
				return
			case <-beat.C:
				if percent, changed := pace.next(allocated()); changed {
					debug.SetGCPercent(percent)
					if pace.calm {
						debug.FreeOSMemory() // what a rush has left: Go itself would give it back bit by bit
					}
				}
			}
		}
	}()
	return func() { close(end); <-ended }
}

// garbagePace decides between the two by what was allocated since it last looked.
type garbagePace struct {
	allocated uint64 // since the start, as of the last look
	quiet     int    // beats in a row with little
	calm      bool
}

// A process is calm that has allocated little in each of some beats; the pauses
// of what comes in bursts are no calm. What collecting costs goes by what is
// allocated: who holds more collects less often, and takes as much longer. At
// the calm share that is some 8 ms for each megabyte, so that little is up to two
// percent of a core.
const (
	calmBeats      = 3
	idleAllocBytes = 25 << 20
)

// next looks once a beat.
func (p *garbagePace) next(allocated uint64) (percent int, changed bool) {
	p.quiet++
	if allocated-p.allocated > idleAllocBytes {
		p.quiet = 0
	}
	calm := p.quiet >= calmBeats
	changed = calm != p.calm
	p.allocated, p.calm = allocated, calm
	if calm {
		return gcPercentIdle, changed
	}
	return gcPercentBusy, changed
}

// allocated is how many bytes of heap were, since the start.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// cgroupLimitFiles are where the kernel says how much memory a container may have, by
// the newer and by the older way of counting.
var cgroupLimitFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// containerLimit reads the first of the files that has a limit in it.
func containerLimit(files []string) (int64, bool) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no number
		if err == nil && limit > 0 && limit < math.MaxInt64/2 {                 // nor is the older way's word for none a limit
			return limit, true
		}
	}
	return 0, false
}

func isSet(env []string, name string) bool {
	return slices.ContainsFunc(env, func(entry string) bool {
		value, ok := strings.CutPrefix(entry, name+"=")
		return ok && value != ""
	})
}

package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// All agents share one garbage collector here, whose cycles take seconds and delay all of them. In a real fleet each
// agent has its own, so garbage collection is deferred.
const garbage = 200 // percent

// deferGC defers garbage collection until the returned function is called or half of the free memory is used. The function
// returns the memory to the system: principals and the API server need it.
func deferGC() (end func()) {
	runtime.GC()
	limit := debug.SetMemoryLimit(limitWithHalfOf(usedMemory(), freeMemory()))
	debug.SetGCPercent(-1)
	return func() {
		debug.SetGCPercent(garbage)
		debug.SetMemoryLimit(limit)
		debug.FreeOSMemory()
	}
}

// limitWithHalfOf returns a memory limit of used plus half of free. A limit below the used memory would run the collector
// continuously.
func limitWithHalfOf(used, free int64) int64 { return min(used, math.MaxInt64-free/2) + free/2 }

// usedMemory returns the memory that counts against the limit: obtained from the system and not returned.
func usedMemory() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64() - sample[1].Value.Uint64())
}

// freeMemory returns the available bytes of the machine, or a sufficient default.
func freeMemory() int64 {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return math.MaxInt64
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var kilobytes int64
		if _, err := fmt.Sscanf(lines.Text(), "MemAvailable: %d kB", &kilobytes); err == nil {
			return kilobytes << 10
		}
	}
	return math.MaxInt64
}

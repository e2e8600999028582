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

// Each agent here stands for a machine of its own. That all share a collector of garbage, whose rounds take seconds and slow
// down every one of them, is nothing that a fleet would see.
const garbage = 200 // percent

// deferGC puts the collector off until what it returns is called, or until half of the machine's free memory is used.
func deferGC() (end func()) {
	runtime.GC()
	limit := debug.SetMemoryLimit(withHalf(usedMemory(), freeMemory()))
	debug.SetGCPercent(-1)
	return func() {
		debug.SetGCPercent(garbage)
		debug.SetMemoryLimit(limit)
	}
}

// withHalf is the memory that a process may reach that has some and uses half of what is free beside it. A limit below what
// it has would keep the collector at work all the time.
func withHalf(used, free int64) int64 { return min(used, math.MaxInt64-free/2) + free/2 }

// usedMemory is what counts against a limit: what the process has from the machine and has not given back.
func usedMemory() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64() - sample[1].Value.Uint64())
}

// freeMemory is how many bytes could be had; without an answer as much as this process may need anyway.
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

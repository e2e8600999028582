package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
)

// Each agent here stands for a machine of its own. That all share a collector of garbage, whose rounds take seconds and slow
// down every one of them, is nothing that a fleet would see.
const garbage = 200 // percent

// undisturbed puts the collector off until what it returns is called, or until half of the machine's free memory is used.
func undisturbed() (end func()) {
	runtime.GC()
	limit := debug.SetMemoryLimit(freeMemory() / 2)
	debug.SetGCPercent(-1)
	return func() {
		debug.SetGCPercent(garbage)
		debug.SetMemoryLimit(limit)
	}
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

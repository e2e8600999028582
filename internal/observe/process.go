package observe

import (
	"fmt"
	"os"
	"runtime/metrics"
	"syscall"
)

// ProcessMetrics tells what the program itself takes, under the names that Go
// programs and Prometheus' own dashboards use.
func ProcessMetrics() []Metric {
	sample := []metrics.Sample{{Name: "/sched/goroutines:goroutines"}, {Name: "/gc/heap/live:bytes"}, {Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(sample)
	out := []Metric{
		Gauge("go_goroutines", "Goroutines that exist.", float64(sample[0].Value.Uint64())),
		Gauge("go_gc_heap_live_bytes", "Bytes of heap that were in use when garbage was last collected.", float64(sample[1].Value.Uint64())),
		Counter("go_cpu_classes_gc_total_cpu_seconds_total", "CPU time that collecting garbage has taken, as Go estimates it.", sample[2].Value.Float64()),
	}
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err == nil {
		seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
		out = append(out, Counter("process_cpu_seconds_total", "CPU time of the process, user and system.", seconds(used.Utime)+seconds(used.Stime)))
	}
	if bytes, ok := resident(); ok {
		out = append(out, Gauge("process_resident_memory_bytes", "Memory of the process that is in RAM.", bytes))
	}
	return out
}

// resident reads what Linux says; elsewhere there is no such file.
func resident() (float64, bool) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, false
	}
	var size, pages float64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0, false
	}
	return pages * float64(os.Getpagesize()), true
}

package main

import (
	"io"
	"log/slog"

	"k8s.io/klog/v2"
)

// observeSettings say how a program is looked at.
type observeSettings struct {
	level   logLevel
	format  logFormat
	metrics int
	healthz int
	pprof   int
	otlp    traceSettings
}

type (
	logLevel  string
	logFormat string
)

const (
	formatText logFormat = "text"
	formatJSON logFormat = "json"
)

var levels = map[logLevel]slog.Level{
	"trace": slog.LevelDebug - 4,
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
}

func (s *observeSettings) declare(f *flags, metrics, healthz int) {
	f.heading("Observability")
	f.add("log-level", choice(&s.level, "info", "trace", "debug", "info", "warn", "error"), "The least important messages that are logged.")
	f.add("log-format", choice(&s.format, formatText, formatText, formatJSON), "Form of a line of the log, which goes to standard error.")
	f.add("metrics-port", optionalPort(&s.metrics, metrics), "Port for Prometheus metrics at /metrics; 0 turns them off.")
	f.add("healthz-port", optionalPort(&s.healthz, healthz), "Port for probes at /healthz and /livez; 0 turns them off.")
	f.add("pprof-port", optionalPort(&s.pprof, 0), "Port on the loopback address for Go's profiler at /debug/pprof/; 0 turns it off.")
	s.otlp.declare(f)
}

func (s *observeSettings) check(f *flags, bad *validationErrors, others ...string) {
	taken := map[string]string{}
	for _, name := range append(others, "metrics-port", "healthz-port", "pprof-port") {
		number := f.set.Lookup(name).Value.String()
		if number == "0" {
			continue
		}
		if other, ok := taken[number]; ok {
			bad.add("%s and %s are both %s: give each a port of its own", f.name(other), f.name(name), number)
		}
		taken[number] = name
	}
	s.otlp.check(f, bad)
}

// logger makes the log. Kubernetes' libraries write into it too.
func (s *observeSettings) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: levels[s.level]}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if s.format == formatJSON {
		handler = slog.NewJSONHandler(w, options)
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log.With("library", "kubernetes"))
	return log
}

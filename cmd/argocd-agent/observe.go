package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// observeSettings configure logs, metrics, probes, profiles and traces.
type observeSettings struct {
	level   logLevels
	format  string
	metrics int
	healthz int
	pprof   int
	otlp    traceSettings
	audit   string
}

const (
	formatText = "text"
	formatJSON = "json"
)

func (s *observeSettings) declare(f *flags, metrics, healthz int) {
	f.heading("Observability")
	f.add("log-level", s.level.value(), "Minimum log level: trace, debug, info, warn or error. A component can have another level, for "+
		"example info,transport=debug. Components: "+strings.Join(logComponents, ", ")+".")
	f.add("log-format", cmdline.Choice(&s.format, formatText, formatText, formatJSON), "Format of the log on standard error.")
	f.add("metrics-port", optionalPort(&s.metrics, metrics), "Port of the Prometheus metrics at /metrics. 0 turns them off.")
	f.add("healthz-port", optionalPort(&s.healthz, healthz), "Port of the probes at /healthz and /livez. 0 turns them off.")
	f.add("pprof-port", optionalPort(&s.pprof, 0), "Port of Go's profiler at /debug/pprof/, on the loopback address. 0 turns it off.")
	s.otlp.declare(f)
	f.add("audit-log", text(&s.audit, "TARGET", ""),
		"Target of the audit log, one JSON line for each command, live write, exec session, confirmation and refusal: a file, - for standard "+
			"output, or otlp for the collector of --otlp-address.").defaultText("no audit log")
}

// check refuses ports that are used twice. An unknown component of the log is no error: other releases may have it.
func (s *observeSettings) check(f *flags) {
	if unknown := s.level.unknown(); len(unknown) > 0 {
		f.warn(f.name("log-level"), "no effect for "+strings.Join(unknown, ", ")+": there is no such component; use one of "+strings.Join(logComponents, ", "))
	}
	used := map[string]string{}
	for _, name := range []string{"listen-port", "resource-proxy-port", "redis-proxy-port", "search-port", "metrics-port", "healthz-port", "pprof-port"} {
		setting := f.settings[name]
		if setting == nil || setting.Value.String() == "0" {
			continue
		}
		number := setting.Value.String()
		if other, ok := used[number]; ok {
			f.fail("%s and %s are both %s: each needs a port of its own", f.name(other), f.name(name), number)
		}
		used[number] = name
	}
	s.otlp.check(f)
	if s.audit == audit.TargetOTLP && s.otlp.address == "" {
		f.fail("%s otlp requires --otlp-address", f.name("audit-log"))
	}
}

// auditLog returns nil if there is no audit log. The caller must close it.
func (s *observeSettings) auditLog(ctx context.Context, component string, stdout io.Writer, log *slog.Logger) (*audit.Log, error) {
	side := audit.Spoke
	if component == "principal" {
		side = audit.Hub
	}
	return audit.Open(ctx, audit.Config{Target: s.audit, Stdout: stdout, Side: side, Log: log, Collector: audit.Collector{
		Address: s.otlp.address, Insecure: s.otlp.insecure, Service: "argocd-agent-" + component, Version: thisBuild().Version}})
}

// listen opens the listeners for metrics and probes.
func (s *observeSettings) listen(ctx context.Context, open *listeners) (metrics, healthz net.Listener, err error) {
	if metrics, err = open.openPort(ctx, "metrics requests", s.metrics); err != nil {
		return nil, nil, err
	}
	healthz, err = open.openPort(ctx, "probes", s.healthz)
	return metrics, healthz, err
}

// logger returns the log. The libraries of Kubernetes write to it, too.
func (s *observeSettings) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: s.level.lowest()}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if s.format == formatJSON {
		handler = slog.NewJSONHandler(w, options)
	}
	if len(s.level.components) > 0 {
		handler = &componentHandler{handler, &s.level, new(sync.Map)}
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log.With("library", "kubernetes"))
	return log
}

// traceSettings configure the export of traces.
type traceSettings struct {
	address  string
	insecure bool
}

func (s *traceSettings) declare(f *flags) {
	f.add("otlp-address", text(&s.address, "HOST:PORT", ""),
		"Address of the OpenTelemetry collector for traces, and for the audit log if --audit-log is otlp. By OTLP over gRPC, usually with port 4317. OTEL_SERVICE_NAME, "+
			"OTEL_RESOURCE_ATTRIBUTES and OTEL_TRACES_SAMPLER apply.").defaultText("no traces")
	f.add("otlp-insecure", boolean(&s.insecure, false), "Connect to the collector without TLS.")
}

func (s *traceSettings) check(f *flags) {
	f.requires(s.address != "", "--otlp-address", "otlp-insecure")
	switch {
	case strings.Contains(s.address, "://"):
		f.failIf("otlp-address", errors.New("must be host:port without a scheme; to turn off TLS, use --otlp-insecure"))
	case s.address != "":
		f.failIf("otlp-address", checkAddress(s.address))
	}
}

// tracer returns nil if traces are off. The caller must close it.
func (s *traceSettings) tracer(ctx context.Context, service string, log *slog.Logger) (*trace.Tracer, error) {
	if s.address == "" {
		return nil, nil
	}
	return trace.New(ctx, trace.Config{Address: s.address, Insecure: s.insecure, Service: service, Version: thisBuild().Version, Log: log})
}

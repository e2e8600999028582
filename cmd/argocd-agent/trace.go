package main

import (
	"context"
	"log/slog"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// traceSettings say where traces go.
type traceSettings struct {
	address  string
	insecure bool
}

func (s *traceSettings) declare(f *flags) {
	f.add("otlp-address", text(&s.address, "HOST:PORT", ""),
		"Send traces to the OpenTelemetry collector there, by OTLP over gRPC, usually on port 4317. OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and "+
			"OTEL_TRACES_SAMPLER hold for them.")
	f.defaultText("otlp-address", "nothing is traced")
	f.add("otlp-insecure", onOff(&s.insecure, false), "Send traces without TLS.")
}

func (s *traceSettings) check(f *flags, bad *validationErrors) {
	switch {
	case strings.Contains(s.address, "://"):
		bad.add("%s %q: give host:port without a scheme; it is spoken to by TLS, or without if there is --otlp-insecure", f.name("otlp-address"), s.address)
	case s.address != "":
		checkAddress(f, bad, "otlp-address", s.address)
	case s.insecure:
		bad.add("%s without --otlp-address has no effect: add the one or remove the other", f.name("otlp-insecure"))
	}
}

// tracer is nil where nothing is traced. Close it.
func (s *traceSettings) tracer(ctx context.Context, service string, log *slog.Logger) (*trace.Tracer, error) {
	if s.address == "" {
		return nil, nil
	}
	return trace.New(ctx, trace.Config{Address: s.address, Insecure: s.insecure, Service: service, Version: thisBuild().Version, Log: log})
}

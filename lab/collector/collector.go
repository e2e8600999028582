// Package collector is an OpenTelemetry collector for tests. It receives traces and logs with OTLP over gRPC and stores them
// for the tests.
package collector

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Span is a received span.
type Span struct {
	Name              string
	Trace, ID, Parent string // hex. If empty, none
	Kind              tracepb.Span_SpanKind
	Begin, End        time.Time
	Failed            bool
	Why               string
	Attributes        map[string]string
	Events            []string
	Resource          map[string]string
}

// Collector stores the received spans. Set its fields before the first span arrives.
type Collector struct {
	collectorpb.UnimplementedTraceServiceServer
	Hold chan struct{} // requests are answered when it is closed. If nil, immediately
	Fail error         // response, if not nil

	address string
	server  *grpc.Server

	mu       sync.Mutex
	spans    []Span
	logs     []Log
	requests int
	changed  chan struct{}
}

// Start starts a collector on an address such as 127.0.0.1:0, with TLS if there is a configuration. The caller must
// close it.
func Start(ctx context.Context, address string, secure *tls.Config) (*Collector, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for traces: %w", err)
	}
	var options []grpc.ServerOption
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	c := &Collector{address: listener.Addr().String(), server: grpc.NewServer(options...), changed: make(chan struct{})}
	collectorpb.RegisterTraceServiceServer(c.server, c)
	logspb.RegisterLogsServiceServer(c.server, logService{collector: c})
	go func() { _ = c.server.Serve(listener) }()
	return c, nil
}

// Address returns the address of the listener.
func (c *Collector) Address() string { return c.address }

// Close stops the collector.
func (c *Collector) Close() { c.server.Stop() }

// Export implements the service.
func (c *Collector) Export(ctx context.Context, r *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	if err := c.admit(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range r.GetResourceSpans() {
		resource := texts(from.GetResource().GetAttributes())
		for _, scope := range from.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans = append(c.spans, read(span, resource))
			}
		}
	}
	c.news()
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// admit counts a request and answers it as Hold and Fail require.
func (c *Collector) admit(ctx context.Context) error {
	c.mu.Lock()
	c.requests++
	c.news()
	c.mu.Unlock()
	if c.Hold != nil {
		select {
		case <-c.Hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c.Fail
}

// Log is a received log record.
type Log struct {
	Event      string
	Body       string
	Attributes map[string]string
	Resource   map[string]string
}

// logService receives log records.
type logService struct {
	logspb.UnimplementedLogsServiceServer
	collector *Collector
}

// Export implements the service.
func (s logService) Export(ctx context.Context, r *logspb.ExportLogsServiceRequest) (*logspb.ExportLogsServiceResponse, error) {
	c := s.collector
	if err := c.admit(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range r.GetResourceLogs() {
		resource := texts(from.GetResource().GetAttributes())
		for _, scope := range from.GetScopeLogs() {
			for _, record := range scope.GetLogRecords() {
				c.logs = append(c.logs, Log{Event: record.GetEventName(), Body: record.GetBody().GetStringValue(), Attributes: texts(record.GetAttributes()), Resource: resource})
			}
		}
	}
	c.news()
	return &logspb.ExportLogsServiceResponse{}, nil
}

// Logs returns all received log records.
func (c *Collector) Logs() []Log {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Log{}, c.logs...)
}

// news wakes waiting goroutines. The caller must hold mu.
func (c *Collector) news() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func read(s *tracepb.Span, resource map[string]string) Span {
	out := Span{
		Name: s.GetName(), Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Kind: s.GetKind(), Begin: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
		Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, Why: s.GetStatus().GetMessage(),
		Attributes: texts(s.GetAttributes()), Resource: resource,
	}
	for _, event := range s.GetEvents() {
		out.Events = append(out.Events, event.GetName())
	}
	return out
}

func texts(attributes []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range attributes {
		switch v := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			out[a.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			out[a.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		default:
			out[a.GetKey()] = a.GetValue().String()
		}
	}
	return out
}

// Spans returns all received spans.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span{}, c.spans...)
}

// Requests returns the number of requests, answered or not.
func (c *Collector) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// Wait waits until the condition is true or the context ends. The condition is checked after every request.
func (c *Collector) Wait(ctx context.Context, condition func() bool) error {
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Find waits for a span that matches.
func (c *Collector) Find(ctx context.Context, match func(Span) bool) (Span, error) {
	var found Span
	err := c.Wait(ctx, func() bool {
		for _, s := range c.Spans() {
			if match(s) {
				found = s
				return true
			}
		}
		return false
	})
	return found, err
}

package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// Config configures a Tracer.
type Config struct {
	Address  string // host:port of a collector that accepts OTLP over gRPC
	Insecure bool   // without TLS
	Service  string // name of the service, unless OTEL_SERVICE_NAME is set
	Version  string
	Log      *slog.Logger

	Queue        int           // spans that wait for the collector or are being sent: 4096
	BatchTimeout time.Duration // how long a span waits for others of its batch: 2 s
}

const (
	batchSize   = 512
	sendTimeout = 10 * time.Second
)

// New returns a Tracer. The collector may be unavailable. The caller must close the Tracer.
//
// The OpenTelemetry library reads further settings from the environment: sampling, attributes of all spans, and headers
// and certificates for the collector.
func New(ctx context.Context, cfg Config) (*Tracer, error) {
	cfg.Queue = cmp.Or(cfg.Queue, 4096)
	cfg.BatchTimeout = cmp.Or(cfg.BatchTimeout, 2*time.Second)
	log := cfg.Log.With("library", "opentelemetry")
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	var logged logonce.Last[string]
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if logged.Changed(err.Error(), "") {
			log.WarnContext(ctx, "Tracing failed", "error", err)
		}
	}))

	options := []otlptracegrpc.Option{otlptracegrpc.WithEndpointURL("https://" + cfg.Address)} // TLS, also if the environment disables it
	if cfg.Insecure {
		options = []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(cfg.Address), otlptracegrpc.WithTLSCredentials(insecure.NewCredentials())}
	}
	options = append(options, otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
		Enabled: true, InitialInterval: 500 * time.Millisecond, MaxInterval: 5 * time.Second, MaxElapsedTime: sendTimeout}))
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("prepare to send traces to %s: %w", cfg.Address, err)
	}
	attributes, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", cfg.Service), attribute.String("service.version", cfg.Version)),
		resource.WithFromEnv())
	if err != nil {
		if !errors.Is(err, resource.ErrPartialResource) {
			return nil, fmt.Errorf("read attributes of traces: %w", err)
		}
		log.WarnContext(ctx, "Failed to read OTEL_RESOURCE_ATTRIBUTES", "error", err)
	}
	life, end := context.WithCancel(context.Background())
	e := &export{address: cfg.Address, room: int64(cfg.Queue), log: cfg.Log, exportCtx: life, end: end}
	queue := sdktrace.NewBatchSpanProcessor(countingExporter{exporter, e}, sdktrace.WithMaxQueueSize(cfg.Queue), sdktrace.WithMaxExportBatchSize(min(batchSize, cfg.Queue)),
		sdktrace.WithBatchTimeout(cfg.BatchTimeout), sdktrace.WithExportTimeout(sendTimeout))
	limits := sdktrace.SpanLimits{AttributeValueLengthLimit: maxTextLen, AttributeCountLimit: 32, EventCountLimit: 32, LinkCountLimit: 1}
	e.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(countingProcessor{queue, e}), sdktrace.WithResource(attributes), sdktrace.WithIDGenerator(idGenerator{}), sdktrace.WithRawSpanLimits(limits))
	return &Tracer{tracer: e.provider.Tracer("github.com/argocd-agent/argocd-agent"), export: e}, nil
}

const closeTimeout = 3 * time.Second

// Close sends the queued spans within closeTimeout.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, t.export.end)() // cancels what is being sent
	_ = t.export.provider.Shutdown(ctx)
	if ctx.Err() != nil {
		t.export.log.Warn("Collector did not accept all traces at shutdown", "collector", t.export.address)
	}
	t.export.end()
}

// Counts are totals of spans.
type Counts struct {
	Sent    uint64 // accepted by the collector
	Full    uint64 // dropped because the queue was full
	Refused uint64 // dropped because the collector was unreachable, slow or rejected them
}

// Counts returns the number of sent and dropped spans. It returns false if nothing is traced.
func (t *Tracer) Counts() (Counts, bool) {
	if t == nil {
		return Counts{}, false
	}
	e := t.export
	return Counts{Sent: e.sent.Load(), Full: e.full.Load(), Refused: e.refused.Load()}, true
}

// export bounds the library's queue, counts sent and dropped spans, and logs when the collector fails and recovers.
type export struct {
	provider  *sdktrace.TracerProvider
	address   string
	room      int64
	log       *slog.Logger
	exportCtx context.Context // of what is being sent
	end       context.CancelFunc

	inside              atomic.Int64
	sent, full, refused atomic.Uint64

	mu            sync.Mutex
	failingSince  time.Time // zero if the collector accepts spans
	droppedBefore uint64    // spans dropped before
}

// countingProcessor drops spans that the queue has no room for. It never waits.
type countingProcessor struct {
	sdktrace.SpanProcessor // the queue
	export                 *export
}

func (e countingProcessor) OnEnd(span sdktrace.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	if e.export.inside.Add(1) > e.export.room {
		e.export.inside.Add(-1)
		e.export.full.Add(1)
		return
	}
	e.SpanProcessor.OnEnd(span)
}

type countingExporter struct {
	sdktrace.SpanExporter // to the collector
	export                *export
}

func (e countingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(e.export.exportCtx, cancel)
	defer stop()
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.export.inside.Add(-int64(len(spans)))
	e.export.recordResult(ctx, len(spans), err)
	return nil // recordResult logs it
}

// recordResult counts spans and logs once when the collector fails and once when it recovers.
func (e *export) recordResult(ctx context.Context, spans int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.sent.Add(uint64(spans))
		if !e.failingSince.IsZero() {
			e.log.InfoContext(ctx, "Collector accepts traces again", "collector", e.address, "after", time.Since(e.failingSince).Round(time.Second),
				"dropped", e.refused.Load()+e.full.Load()-e.droppedBefore)
		}
		e.failingSince = time.Time{}
		return
	}
	if e.failingSince.IsZero() {
		e.failingSince, e.droppedBefore = time.Now(), e.refused.Load()+e.full.Load()
		e.log.WarnContext(ctx, "Failed to send traces", "collector", e.address, "error", err)
	}
	e.refused.Add(uint64(spans))
}

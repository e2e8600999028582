package trace

import (
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
)

// Config says where traces go, and what the program is called in them.
type Config struct {
	Address  string // host:port of a collector that takes OTLP by gRPC
	Insecure bool   // without TLS
	Service  string // OTEL_SERVICE_NAME calls it otherwise
	Version  string
	Log      *slog.Logger

	Queue int           // spans that wait for the collector, or are on their way: 4096
	Beat  time.Duration // how long a span waits for others to be sent with: 2 s
}

const (
	batchSize   = 512
	sendTimeout = 10 * time.Second
)

// New makes a Tracer. The collector need not be there. Close it.
//
// OpenTelemetry's library reads further settings from the environment: what is
// sampled, attributes of all spans, headers and certificates for the collector.
func New(ctx context.Context, cfg Config) (*Tracer, error) {
	if cfg.Queue == 0 {
		cfg.Queue = 4096
	}
	if cfg.Beat == 0 {
		cfg.Beat = 2 * time.Second
	}
	log := cfg.Log.With("library", "opentelemetry")
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(&errorLogger{log: log, said: map[string]bool{}})

	where := []otlptracegrpc.Option{otlptracegrpc.WithEndpointURL("https://" + cfg.Address)} // by TLS, whatever the environment says
	if cfg.Insecure {
		where = []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(cfg.Address), otlptracegrpc.WithTLSCredentials(insecure.NewCredentials())}
	}
	where = append(where, otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
		Enabled: true, InitialInterval: 500 * time.Millisecond, MaxInterval: 5 * time.Second, MaxElapsedTime: sendTimeout}))
	sender, err := otlptracegrpc.New(ctx, where...)
	if err != nil {
		return nil, fmt.Errorf("prepare to send traces to %s: %w", cfg.Address, err)
	}
	who, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", cfg.Service), attribute.String("service.version", cfg.Version)),
		resource.WithFromEnv())
	if err != nil {
		if !errors.Is(err, resource.ErrPartialResource) {
			return nil, fmt.Errorf("read attributes of traces: %w", err)
		}
		log.WarnContext(ctx, "some attributes of traces cannot be read: see OTEL_RESOURCE_ATTRIBUTES", "error", err)
	}
	life, end := context.WithCancel(context.Background())
	e := &export{address: cfg.Address, room: int64(cfg.Queue), log: cfg.Log, life: life, end: end}
	queue := sdktrace.NewBatchSpanProcessor(countingExporter{sender, e}, sdktrace.WithMaxQueueSize(cfg.Queue), sdktrace.WithMaxExportBatchSize(min(batchSize, cfg.Queue)),
		sdktrace.WithBatchTimeout(cfg.Beat), sdktrace.WithExportTimeout(sendTimeout))
	limits := sdktrace.SpanLimits{AttributeValueLengthLimit: longest, AttributeCountLimit: 32, EventCountLimit: 32, LinkCountLimit: 1}
	e.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(countingProcessor{queue, e}), sdktrace.WithResource(who), sdktrace.WithIDGenerator(idGenerator{}), sdktrace.WithRawSpanLimits(limits))
	return &Tracer{tracer: e.provider.Tracer("github.com/argocd-agent/argocd-agent"), export: e}, nil
}

// closing is how long what has been traced may take to be sent at the end.
const closing = 3 * time.Second

// Close sends what waits, if the collector takes it at once, and ends.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	defer context.AfterFunc(ctx, t.export.end)() // whatever is being sent
	_ = t.export.provider.Shutdown(ctx)
	if ctx.Err() != nil {
		t.export.log.Warn("the collector did not take all traces at the end", "collector", t.export.address)
	}
	t.export.end()
}

// Counts are totals of spans. A Tracer that is nil has none.
type Counts struct {
	Sent    uint64 // the collector has taken them
	Full    uint64 // lost, because too many waited
	Refused uint64 // lost, because the collector was away, too slow, or did not want them
}

// Counts tells what has become of spans.
func (t *Tracer) Counts() (Counts, bool) {
	if t == nil {
		return Counts{}, false
	}
	e := t.export
	return Counts{Sent: e.sent.Load(), Full: e.full.Load(), Refused: e.refused.Load()}, true
}

// export is what stands on both sides of the library's queue: an entrance, which
// lets in no more than there is room for and counts who stays outside, and an
// exit, which counts what becomes of those inside and says when that changes.
type export struct {
	provider *sdktrace.TracerProvider
	address  string
	room     int64
	log      *slog.Logger
	life     context.Context // of what is being sent
	end      context.CancelFunc

	inside              atomic.Int64
	sent, full, refused atomic.Uint64

	mu      sync.Mutex
	trouble time.Time // since when nothing arrives; zero: it does
	before  uint64    // what had been lost until then
}

type countingProcessor struct {
	sdktrace.SpanProcessor // the queue
	export                 *export
}

// OnEnd implements sdktrace.SpanProcessor. It never waits.
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

// ExportSpans implements sdktrace.SpanExporter.
func (e countingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(e.export.life, cancel)
	defer stop()
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.export.inside.Add(-int64(len(spans)))
	e.export.note(ctx, len(spans), err)
	return nil // it is told
}

// note counts, and says once that the collector is away, and once that it is back.
func (e *export) note(ctx context.Context, spans int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.sent.Add(uint64(spans))
		if !e.trouble.IsZero() {
			e.log.InfoContext(ctx, "the collector takes traces again", "collector", e.address, "after", time.Since(e.trouble).Round(time.Second),
				"lost", e.refused.Load()+e.full.Load()-e.before)
		}
		e.trouble = time.Time{}
		return
	}
	if e.trouble.IsZero() {
		e.trouble, e.before = time.Now(), e.refused.Load()+e.full.Load()
		e.log.WarnContext(ctx, "cannot send traces: they are lost until the collector takes them; nothing else waits for it", "collector", e.address, "error", err)
	}
	e.refused.Add(uint64(spans))
}

// errorLogger are the library's own: each is logged once.
type errorLogger struct {
	log *slog.Logger

	mu   sync.Mutex
	said map[string]bool
}

const maxSaid = 32

// Handle implements otel.ErrorHandler.
func (c *errorLogger) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text := err.Error(); !c.said[text] && len(c.said) < maxSaid {
		c.said[text] = true
		c.log.Warn("tracing", "error", err)
	}
}

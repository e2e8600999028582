package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Collector is an OpenTelemetry collector that accepts OTLP over gRPC.
type Collector struct {
	Address  string // host:port
	Insecure bool   // without TLS
	Service  string // name of the service, unless OTEL_SERVICE_NAME is set
	Version  string
}

const sendTimeout = 10 * time.Second

// export sends records to a collector. The library's own queue drops records without a count, so the Log queues them.
type export struct {
	exporter sdklog.Exporter
	provider *sdklog.LoggerProvider
	logger   log.Logger
	batch    *batch
}

// batch is a processor that collects the records of one request.
type batch struct{ records []sdklog.Record }

func (b *batch) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }

func (b *batch) OnEmit(_ context.Context, r *sdklog.Record) error {
	b.records = append(b.records, r.Clone())
	return nil
}

func (*batch) Shutdown(context.Context) error   { return nil }
func (*batch) ForceFlush(context.Context) error { return nil }

func newExport(ctx context.Context, cfg Collector) (*export, error) {
	options := []otlploggrpc.Option{otlploggrpc.WithEndpointURL("https://" + cfg.Address)} // TLS, also if the environment disables it
	if cfg.Insecure {
		options = []otlploggrpc.Option{otlploggrpc.WithEndpoint(cfg.Address), otlploggrpc.WithInsecure()}
	}
	options = append(options, otlploggrpc.WithTimeout(sendTimeout), otlploggrpc.WithRetry(otlploggrpc.RetryConfig{
		Enabled: true, InitialInterval: 500 * time.Millisecond, MaxInterval: 5 * time.Second, MaxElapsedTime: sendTimeout}))
	exporter, err := otlploggrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("prepare to send audit records to %s: %w", cfg.Address, err)
	}
	attributes, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", cfg.Service), attribute.String("service.version", cfg.Version)),
		resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("read attributes of audit records: %w", err)
	}
	e := &export{exporter: exporter, batch: new(batch)}
	e.provider = sdklog.NewLoggerProvider(sdklog.WithProcessor(e.batch), sdklog.WithResource(attributes), sdklog.WithAttributeValueLengthLimit(maxReasonLen))
	e.logger = e.provider.Logger("github.com/argocd-agent/argocd-agent/audit")
	return e, nil
}

func (e *export) write(ctx context.Context, records []Record) (int, error) {
	e.batch.records = e.batch.records[:0]
	for _, r := range records {
		e.logger.Emit(ctx, r.telemetry())
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if err := e.exporter.Export(ctx, e.batch.records); err != nil {
		return 0, fmt.Errorf("send to the collector: %w", err)
	}
	return len(records), nil
}

func (e *export) close(ctx context.Context) {
	_ = e.provider.Shutdown(ctx)
	_ = e.exporter.Shutdown(ctx)
}

// telemetry returns the record in OpenTelemetry's form. The body is the line, and the fields are attributes, too.
func (r Record) telemetry() log.Record {
	var out log.Record
	out.SetTimestamp(r.Time)
	out.SetEventName("argocd_agent.audit")
	out.SetSeverity(log.SeverityInfo)
	if r.Result != OK && r.Result != Begun {
		out.SetSeverity(log.SeverityWarn)
	}
	line := r.line()
	out.SetBody(attribute.StringValue(string(line[:len(line)-1])))
	for _, field := range []struct{ name, value string }{
		{"argocd_agent.side", string(r.Side)}, {"argocd_agent.agent", r.Agent}, {"argocd_agent.audit.type", string(r.Type)},
		{"argocd_agent.audit.action", r.Action}, {"argocd_agent.audit.result", string(r.Result)}, {"argocd_agent.audit.request_id", r.RequestID},
		{"argocd_agent.application", r.Application}, {"enduser.id", r.Caller}, {"k8s.resource.group", r.Object.Group},
		{"k8s.resource.name", r.Object.Resource}, {"k8s.namespace.name", r.Object.Namespace}, {"k8s.object.name", r.Object.Name},
	} {
		if field.value != "" {
			out.AddAttributes(attribute.String(field.name, field.value))
		}
	}
	return out
}

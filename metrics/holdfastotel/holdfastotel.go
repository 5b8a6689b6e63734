// Package holdfastotel makes metrics and traces of OpenTelemetry of the locks of package holdfast.
//
//	hooks, err := holdfastotel.Hooks(nil) // with the global providers
//	locks := holdfast.New(store, &holdfast.Config{Hooks: hooks})
//
// The metrics, with units and attributes:
//
//	holdfast.acquire.duration   s          store, group, outcome = acquired, held, timeout, canceled, error; error.type
//	holdfast.hold.duration      s          store, group, end = released, kept, handed_over, expired, taken, max_hold
//	holdfast.holds              {hold}     store, group
//	holdfast.waiters            {waiter}   store, group
//	holdfast.renewals           {renewal}  store, outcome = renewed, in_doubt, lost
//	holdfast.renewal.margin     1          store; the part of the TTL left when a renewal was confirmed, 0.66 or more when all is well
//	holdfast.request.duration   s          store, op, outcome = ok, error; error.type
//	holdfast.leader             1          election; 1 on the leader: see ObserveElection
//
// The counts of renewals begin at 0 with the first acquisition. A histogram has no series before
// its first value, so that Prometheus has no rate of the first expired hold of a group.
//
// The name of a lock is no attribute of a metric. Options.Group makes groups of names. Exemplars
// lead to the span of the acquisition, which has the name and the token.
//
// Each acquisition is a span holdfast.acquire, with the spans of the store's client below it, and
// an event holdfast.contended where it begins to wait. Each release is a span holdfast.release with
// a link to it. There is no span as long as a hold. A lock that is lost is an event holdfast.lost
// of the span in which it was acquired, which gets the status Error.
package holdfastotel

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/metrics"
)

// scope is the name of the instrumentation.
const scope = "github.com/holdfast-go/holdfast/metrics/holdfastotel"

// Options are the settings. The zero value and nil mean the defaults.
type Options struct {
	// Group returns the attribute group for the name of a lock, as metrics.FirstSegment does. nil,
	// and a group "", leave the attribute away.
	Group metrics.Grouping

	MeterProvider  metric.MeterProvider // nil means the global one
	TracerProvider trace.TracerProvider // nil means the global one
}

// instruments are the metrics and the tracer.
type instruments struct {
	groups *metrics.Groups
	tracer trace.Tracer

	acquire, hold, margin, request metric.Float64Histogram
	holds, waiters                 metric.Int64UpDownCounter
	renewals                       metric.Int64Counter

	started sync.Map // the stores for which start has begun the counts of renewals
}

// Hooks returns the hooks for the Config of Clients. holdfast.JoinHooks joins them with others.
func Hooks(o *Options) (holdfast.Hooks, error) {
	if o == nil {
		o = &Options{}
	}
	meter := cmp.Or(o.MeterProvider, otel.GetMeterProvider()).Meter(scope)
	tracer := cmp.Or(o.TracerProvider, otel.GetTracerProvider()).Tracer(scope)
	n := &instruments{groups: metrics.NewGroups(o.Group), tracer: tracer}
	var errs []error
	histogram := func(name, unit, description string, buckets []float64) metric.Float64Histogram {
		instrument, err := meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		return instrument
	}
	gauge := func(name, unit, description string) metric.Int64UpDownCounter {
		instrument, err := meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return instrument
	}
	n.acquire = histogram("holdfast.acquire.duration", "s", "How long acquisitions of locks took, with the wait.", metrics.AcquireBuckets())
	n.hold = histogram("holdfast.hold.duration", "s", "How long locks were held, by how the hold ended.", metrics.HoldBuckets())
	n.margin = histogram("holdfast.renewal.margin", "1", "The part of the TTL that was left when a renewal was confirmed.", metrics.MarginBuckets())
	n.request = histogram("holdfast.request.duration", "s", "How long requests to the store of locks took.", metrics.RequestBuckets())
	n.holds = gauge("holdfast.holds", "{hold}", "Locks that are held.")
	n.waiters = gauge("holdfast.waiters", "{waiter}", "Acquisitions that wait for a lock which is held.")
	var err error
	n.renewals, err = meter.Int64Counter("holdfast.renewals", metric.WithUnit("{renewal}"), metric.WithDescription("Renewals of locks."))
	if err := errors.Join(append(errs, err)...); err != nil {
		return holdfast.Hooks{}, err
	}
	return holdfast.Hooks{Start: n.start, Event: n.event}, nil
}

// ObserveElection makes the metric holdfast.leader of an election, by the MeterProvider of o.
func ObserveElection(o *Options, e *election.Election) error {
	if o == nil {
		o = &Options{}
	}
	attributes := metric.WithAttributes(attribute.String("election", e.Name()))
	_, err := cmp.Or(o.MeterProvider, otel.GetMeterProvider()).Meter(scope).Int64ObservableGauge("holdfast.leader", metric.WithUnit("1"),
		metric.WithDescription("Whether this process leads, 1 or 0."),
		metric.WithInt64Callback(func(_ context.Context, to metric.Int64Observer) error {
			value := int64(0)
			if _, leads := e.Leading(); leads {
				value = 1
			}
			to.Observe(value, attributes)
			return nil
		}))
	return err
}

// callerKey is the key of the span in which an acquisition was called.
type callerKey struct{}

func (n *instruments) start(ctx context.Context, s holdfast.Start) context.Context {
	if _, started := n.started.LoadOrStore(s.Store, nil); !started {
		// Prometheus misses the first event of a series that begins with it.
		for _, outcome := range []string{"renewed", "in_doubt", "lost"} {
			n.renewals.Add(context.WithoutCancel(ctx), 0,
				metric.WithAttributes(attribute.String("store", s.Store), attribute.String("outcome", outcome)))
		}
	}
	ctx = context.WithValue(ctx, callerKey{}, trace.SpanFromContext(ctx))
	ctx, _ = n.tracer.Start(ctx, "holdfast.acquire", trace.WithAttributes(
		attribute.String("holdfast.lock.name", s.Name),
		attribute.String("holdfast.store", s.Store),
		attribute.String("holdfast.op", s.Op),
	))
	return ctx
}

func (n *instruments) event(ctx context.Context, e holdfast.Event) {
	n.trace(ctx, e)
	ctx = context.WithoutCancel(ctx)
	store := attribute.String("store", e.Store)
	if e.Kind == holdfast.EventRequest {
		attributes := []attribute.KeyValue{store, attribute.String("op", e.Op), attribute.String("outcome", metrics.RequestOutcome(e))}
		n.request.Record(ctx, e.Took.Seconds(), metric.WithAttributes(withErrorType(attributes, e.Err)...))
		return
	}
	if outcome := metrics.Renewal(e); outcome != "" {
		n.renewals.Add(ctx, 1, metric.WithAttributes(store, attribute.String("outcome", outcome)))
	}
	if e.Kind == holdfast.EventRenewed {
		n.margin.Record(ctx, metrics.Margin(e), metric.WithAttributes(store))
		return
	}
	attributes := append(make([]attribute.KeyValue, 0, 4), store)
	if group := n.groups.Of(e.Name); group != "" {
		attributes = append(attributes, attribute.String("group", group))
	}
	switch e.Kind {
	case holdfast.EventWaiting:
		n.waiters.Add(ctx, 1, metric.WithAttributes(attributes...))
	case holdfast.EventWaited:
		n.waiters.Add(ctx, -1, metric.WithAttributes(attributes...))
	case holdfast.EventAcquired:
		n.holds.Add(ctx, 1, metric.WithAttributes(attributes...))
	}
	if end := metrics.End(e); end != "" {
		n.holds.Add(ctx, -1, metric.WithAttributes(attributes...))
		n.hold.Record(ctx, e.Held.Seconds(), metric.WithAttributes(append(attributes, attribute.String("end", end))...))
	}
	if outcome := metrics.Outcome(e); outcome != "" {
		attributes = append(attributes, attribute.String("outcome", outcome))
		if outcome == "error" {
			attributes = withErrorType(attributes, e.Err)
		}
		n.acquire.Record(ctx, e.Took.Seconds(), metric.WithAttributes(attributes...))
	}
}

func withErrorType(attributes []attribute.KeyValue, err error) []attribute.KeyValue {
	if err == nil {
		return attributes
	}
	return append(attributes, attribute.String("error.type", metrics.ErrorType(err)))
}

// trace reports an event to the span of its acquisition, or to that in which it was called. After
// the end of a span its methods do nothing.
func (n *instruments) trace(ctx context.Context, e holdfast.Event) {
	caller, ok := ctx.Value(callerKey{}).(trace.Span)
	if !ok || e.Kind == holdfast.EventRequest {
		return
	}
	token := attribute.Int64("holdfast.lock.token", e.Token)
	span := trace.SpanFromContext(ctx)
	switch e.Kind {
	case holdfast.EventWaiting:
		span.AddEvent("holdfast.contended", trace.WithAttributes(attribute.String("holdfast.holder", e.By.Holder)))
	case holdfast.EventAcquired, holdfast.EventJoined:
		span.SetAttributes(token, attribute.String("holdfast.outcome", metrics.Outcome(e)))
		span.End()
	case holdfast.EventRefused, holdfast.EventFailed:
		outcome := metrics.Outcome(e)
		span.SetAttributes(attribute.String("holdfast.outcome", outcome))
		if outcome == "error" {
			span.SetAttributes(withErrorType(nil, e.Err)...)
			span.SetStatus(codes.Error, e.Err.Error())
		}
		span.End()
	case holdfast.EventReleased, holdfast.EventKept, holdfast.EventHandedOver:
		_, release := n.tracer.Start(trace.ContextWithSpan(ctx, caller), "holdfast.release",
			trace.WithTimestamp(time.Now().Add(-e.Took)),
			trace.WithLinks(trace.Link{SpanContext: span.SpanContext()}),
			trace.WithAttributes(token, attribute.String("holdfast.lock.name", e.Name), attribute.String("holdfast.end", metrics.End(e))))
		if e.Err != nil {
			release.SetAttributes(withErrorType(nil, e.Err)...)
			release.SetStatus(codes.Error, e.Err.Error())
		}
		release.End()
	case holdfast.EventLost:
		caller.AddEvent("holdfast.lost", trace.WithAttributes(token,
			attribute.String("holdfast.lock.name", e.Name), attribute.String("holdfast.end", metrics.End(e))))
		caller.SetStatus(codes.Error, e.Err.Error())
	}
}

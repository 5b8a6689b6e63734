package holdfastotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
	"github.com/holdfast-go/holdfast/metrics"
	"github.com/holdfast-go/holdfast/metrics/holdfastotel"
)

// A setting is what a test needs of OpenTelemetry.
type setting struct {
	reader   *sdkmetric.ManualReader
	spans    *tracetest.SpanRecorder
	provider *sdktrace.TracerProvider
	options  *holdfastotel.Options
	hooks    holdfast.Hooks
}

func newSetting(t *testing.T, group metrics.Grouping) *setting {
	t.Helper()
	s := &setting{reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	s.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))
	s.options = &holdfastotel.Options{
		Group:          group,
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader)),
		TracerProvider: s.provider,
	}
	var err error
	if s.hooks, err = holdfastotel.Hooks(s.options); err != nil {
		t.Fatal(err)
	}
	return s
}

// collect returns the metrics.
func (s *setting) collect(t *testing.T) []metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	var collected []metricdata.Metrics
	for _, scope := range all.ScopeMetrics {
		collected = append(collected, scope.Metrics...)
	}
	return collected
}

// counts returns the value of each series that is not 0, of a histogram the number of its
// observations, and the sums that are 0.
func (s *setting) counts(t *testing.T) (values map[string]float64, zero []string) {
	t.Helper()
	values = map[string]float64{}
	add := func(name string, attributes attribute.Set, value float64) {
		for _, a := range attributes.ToSlice() {
			name += " " + a.Value.String()
		}
		if value != 0 {
			values[name] = value
		} else {
			zero = append(zero, name)
		}
	}
	for _, m := range s.collect(t) {
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, float64(p.Count))
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, float64(p.Value))
			}
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				add(m.Name, p.Attributes, float64(p.Value))
			}
		default:
			t.Errorf("%s is %T", m.Name, data)
		}
	}
	slices.Sort(zero)
	return values, zero
}

// Each metric counts what it is named after, by group, and no attribute has the name of a lock. After
// Close the sums of holds and waiters are 0, after a term that of the leader is, and every span has ended. The counts of renewals begin
// at 0, before the first: Prometheus has no rate of a series whose first value is 1.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := newSetting(t, metrics.FirstSegment)
		store := faultstore.Wrap(memstore.New())
		locks, other := holdfast.New(store, &holdfast.Config{Hooks: s.hooks, LocalTurn: -1}), holdfast.New(store.Store, nil)
		defer other.Close()
		office := election.New(other, "office", nil)
		if err := holdfastotel.ObserveElection(s.options, office); err != nil {
			t.Fatal(err)
		}
		if _, err := locks.TryAcquire(ctx, "a/1", nil); err != nil {
			t.Fatal(err)
		}
		if _, zero := s.counts(t); !slices.Equal(zero, []string{
			"holdfast.leader office", "holdfast.renewals in_doubt memory", "holdfast.renewals lost memory", "holdfast.renewals renewed memory",
		}) {
			t.Errorf("series at 0: %q", zero)
		}
		go func() { _, _ = locks.Acquire(ctx, "a/1", &holdfast.Options{Wait: time.Second}) }()
		term, resign := context.WithCancel(ctx)
		go func() {
			_ = office.Run(term, func(ctx context.Context, _ election.Term) error {
				<-ctx.Done()
				return nil
			})
		}()
		synctest.Wait()
		if got, _ := s.counts(t); got["holdfast.holds a memory"] != 1 || got["holdfast.waiters a memory"] != 1 || got["holdfast.leader office"] != 1 {
			t.Errorf("during a hold, a wait and a term: %v", got)
		}
		resign()
		time.Sleep(10 * time.Second) // a renewal
		store.Once(faultstore.Renew, faultstore.Refuse)
		time.Sleep(12 * time.Second) // one more, and one that is refused
		if _, err := other.Break(ctx, "a/1", 0); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second)
		store.Set(faultstore.Acquire, faultstore.Refuse)
		_, err := locks.TryAcquire(ctx, "a/1", nil)
		if !errors.Is(err, holdfast.ErrUnavailable) {
			t.Error(err)
		}
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		got, _ := s.counts(t)
		if want := (map[string]float64{
			"holdfast.acquire.duration a acquired memory":           1,
			"holdfast.acquire.duration a timeout memory":            1,
			"holdfast.acquire.duration unavailable a error memory":  1,
			"holdfast.hold.duration taken a memory":                 1,
			"holdfast.renewal.margin memory":                        2,
			"holdfast.renewals renewed memory":                      2,
			"holdfast.renewals in_doubt memory":                     1,
			"holdfast.renewals lost memory":                         1,
			"holdfast.request.duration acquire ok memory":           1,
			"holdfast.request.duration renew ok memory":             3,
			"holdfast.request.duration _OTHER renew error memory":   1,
			"holdfast.request.duration _OTHER acquire error memory": 1,
		}); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if started, ended := len(s.spans.Started()), len(s.spans.Ended()); started != ended {
			t.Errorf("%d spans, %d ended", started, ended)
		}
	})
}

// An acquisition is a span below that of the caller, with those of the requests below it. The
// release is a span with a link to it, and a loss is an event of the caller's span.
func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetting(t, nil)
		tracer := s.provider.Tracer("test")
		store := faultstore.Wrap(memstore.New())
		store.Set(faultstore.Acquire, func(ctx context.Context, _ faultstore.Op, apply func()) error {
			_, span := tracer.Start(ctx, "request")
			defer span.End()
			apply()
			return nil
		})
		locks := holdfast.New(store, &holdfast.Config{Hooks: s.hooks})
		other := holdfast.New(store.Store, &holdfast.Config{Holder: "other"})
		defer other.Close()
		foreign, err := other.Acquire(t.Context(), "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, caller := tracer.Start(t.Context(), "caller")
		time.AfterFunc(time.Second, func() { _ = foreign.Release() })
		lock, err := locks.Acquire(ctx, "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Release(); err != nil {
			t.Error(err)
		}
		lost, err := locks.Acquire(ctx, "b", &holdfast.Options{MaxHold: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		<-lost.Context().Done()
		synctest.Wait()
		caller.End()
		store.Set(faultstore.Acquire, faultstore.Refuse)
		_, _ = locks.TryAcquire(t.Context(), "c", nil)
		_ = locks.Close() // the lost lock is no failure here

		byName := map[string][]sdktrace.ReadOnlySpan{}
		for _, span := range s.spans.Ended() {
			byName[span.Name()] = append(byName[span.Name()], span)
		}
		acquires, releases := byName["holdfast.acquire"], byName["holdfast.release"]
		if len(acquires) != 3 || len(releases) != 1 || len(byName["request"]) < 2 {
			t.Fatalf("spans: %d, %d, %d", len(acquires), len(releases), len(byName["request"]))
		}
		acquire := acquires[0]
		if acquire.Parent().SpanID() != caller.SpanContext().SpanID() || acquire.SpanKind() != trace.SpanKindInternal ||
			acquire.EndTime().Sub(acquire.StartTime()) != time.Second {
			t.Errorf("acquire: %+v", acquire)
		}
		attributes := fmt.Sprint(acquire.Attributes())
		for _, want := range []string{"holdfast.lock.name", "holdfast.lock.token", "holdfast.store", "acquired"} {
			if !strings.Contains(attributes, want) {
				t.Errorf("no %s among %s", want, attributes)
			}
		}
		if events := acquire.Events(); len(events) != 1 || events[0].Name != "holdfast.contended" || events[0].Attributes[0].Value.AsString() != "other" {
			t.Errorf("events: %+v", acquire.Events())
		}
		if byName["request"][0].Parent().SpanID() != acquire.SpanContext().SpanID() {
			t.Error("a request is not below its acquisition")
		}
		release := releases[0]
		if links := release.Links(); release.Parent().SpanID() != caller.SpanContext().SpanID() ||
			len(links) != 1 || links[0].SpanContext.SpanID() != acquire.SpanContext().SpanID() {
			t.Errorf("release: %+v", release)
		}
		span := byName["caller"][0]
		if events := span.Events(); len(events) != 1 || events[0].Name != "holdfast.lost" || span.Status().Code != codes.Error {
			t.Errorf("after a loss: %+v, %v", events, span.Status())
		}
		if failed := acquires[2]; failed.Status().Code != codes.Error || !strings.Contains(fmt.Sprint(failed.Attributes()), "unavailable") {
			t.Errorf("a failure: %v, %v", failed.Status(), failed.Attributes())
		}
	})
}

// Package holdfastprom makes metrics for Prometheus of the locks of package holdfast.
//
//	collector := holdfastprom.New(nil)
//	prometheus.MustRegister(collector)
//	locks := holdfast.New(store, &holdfast.Config{Hooks: collector.Hooks()})
//
// One Collector serves any number of Clients. Its metrics:
//
//	holdfast_acquire_duration_seconds   histogram  store, group, outcome = acquired, held, timeout, canceled, error
//	holdfast_hold_duration_seconds      histogram  store, group, end = released, kept, handed_over, expired, taken, max_hold
//	holdfast_holds                      gauge      store, group
//	holdfast_waiters                    gauge      store, group
//	holdfast_renewals_total             counter    store, outcome = renewed, in_doubt, lost
//	holdfast_renewal_margin_ratio       histogram  store; the part of the TTL left when a renewal was confirmed, 0.66 or more when all is well
//	holdfast_request_duration_seconds   histogram  store, op, outcome = ok, error
//	holdfast_leader                     gauge      election; 1 on the leader
//
// The name of a lock is no label. Options.Group makes groups of names; each makes some 160 time
// series with its first acquisition, most of them at 0: Prometheus has no rate of a series whose
// first value is 1. The histograms of acquisitions and holds have exemplars with the name and the
// token of the lock, for scrapes that ask for OpenMetrics (promhttp.HandlerOpts.EnableOpenMetrics).
package holdfastprom

import (
	"context"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/metrics"
)

// Options are the settings of a Collector. The zero value and nil mean the defaults.
type Options struct {
	// Group returns the value of the label group for the name of a lock, as metrics.FirstSegment
	// does. nil leaves the label empty.
	Group metrics.Grouping

	// Trace returns the trace and span of a context for exemplars, "" for none. nil means none.
	Trace func(ctx context.Context) (traceID, spanID string)
}

// A Collector makes the metrics. It is a prometheus.Collector.
type Collector struct {
	groups *metrics.Groups
	trace  func(context.Context) (traceID, spanID string)

	acquire, hold, margin, request *prometheus.HistogramVec
	holds, waiters, leader         *prometheus.GaugeVec
	renewals                       *prometheus.CounterVec

	made sync.Map // a [2]string for each store and group of which start has made the series

	mu        sync.Mutex
	elections []*election.Election
}

// New returns a Collector.
func New(o *Options) *Collector {
	if o == nil {
		o = &Options{}
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	return &Collector{
		groups: metrics.NewGroups(o.Group),
		trace:  o.Trace,
		acquire: histogram("holdfast_acquire_duration_seconds", "How long acquisitions of locks took, with the wait.",
			metrics.AcquireBuckets(), "store", "group", "outcome"),
		hold: histogram("holdfast_hold_duration_seconds", "How long locks were held, by how the hold ended.",
			metrics.HoldBuckets(), "store", "group", "end"),
		margin: histogram("holdfast_renewal_margin_ratio", "The part of the TTL that was left when a renewal was confirmed.",
			metrics.MarginBuckets(), "store"),
		request: histogram("holdfast_request_duration_seconds", "How long requests to the store of locks took.",
			metrics.RequestBuckets(), "store", "op", "outcome"),
		holds:   gauge("holdfast_holds", "Locks that are held.", "store", "group"),
		waiters: gauge("holdfast_waiters", "Acquisitions that wait for a lock which is held.", "store", "group"),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_renewals_total", Help: "Renewals of locks.",
		}, []string{"store", "outcome"}),
		leader: gauge("holdfast_leader", "Whether this process leads, 1 or 0.", "election"),
	}
}

// AddElection adds an election to the metric holdfast_leader.
func (c *Collector) AddElection(e *election.Election) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elections = append(c.elections, e)
}

// Hooks returns the hooks for the Config of a Client. holdfast.JoinHooks joins them with others.
func (c *Collector) Hooks() holdfast.Hooks { return holdfast.Hooks{Start: c.start, Event: c.event} }

// start makes the series of rare outcomes, at 0. Prometheus misses the first event of a series that
// begins with it, and these events are few.
func (c *Collector) start(ctx context.Context, s holdfast.Start) context.Context {
	store, group := s.Store, c.groups.Of(s.Name)
	key := [2]string{store, group}
	if _, made := c.made.Load(key); made {
		return ctx
	}
	for _, outcome := range []string{"renewed", "in_doubt", "lost"} {
		c.renewals.WithLabelValues(store, outcome)
	}
	for _, outcome := range []string{"held", "timeout", "error"} {
		c.acquire.WithLabelValues(store, group, outcome)
	}
	for _, end := range []string{"released", "expired", "taken", "max_hold"} {
		c.hold.WithLabelValues(store, group, end)
	}
	c.holds.WithLabelValues(store, group)
	c.waiters.WithLabelValues(store, group)
	c.made.Store(key, nil)
	return ctx
}

func (c *Collector) event(ctx context.Context, e holdfast.Event) {
	if e.Kind == holdfast.EventRequest {
		c.request.WithLabelValues(e.Store, e.Op, metrics.RequestOutcome(e)).Observe(e.Took.Seconds())
		return
	}
	if outcome := metrics.Renewal(e); outcome != "" {
		c.renewals.WithLabelValues(e.Store, outcome).Inc()
	}
	if e.Kind == holdfast.EventRenewed {
		c.margin.WithLabelValues(e.Store).Observe(metrics.Margin(e))
		return
	}
	group := c.groups.Of(e.Name)
	switch e.Kind {
	case holdfast.EventWaiting:
		c.waiters.WithLabelValues(e.Store, group).Inc()
	case holdfast.EventWaited:
		c.waiters.WithLabelValues(e.Store, group).Dec()
	case holdfast.EventAcquired:
		c.holds.WithLabelValues(e.Store, group).Inc()
	}
	if outcome := metrics.Outcome(e); outcome != "" {
		c.observe(ctx, c.acquire.WithLabelValues(e.Store, group, outcome), e.Took.Seconds(), e)
	}
	if end := metrics.End(e); end != "" {
		c.holds.WithLabelValues(e.Store, group).Dec()
		c.observe(ctx, c.hold.WithLabelValues(e.Store, group, end), e.Held.Seconds(), e)
	}
}

// observe adds a value to a histogram, with an exemplar.
func (c *Collector) observe(ctx context.Context, to prometheus.Observer, value float64, e holdfast.Event) {
	labels := prometheus.Labels{}
	if c.trace != nil {
		if traceID, spanID := c.trace(ctx); traceID != "" {
			labels["trace_id"], labels["span_id"] = traceID, spanID
		}
	}
	if e.Token != 0 {
		labels["token"] = strconv.FormatInt(e.Token, 10)
	}
	room := prometheus.ExemplarMaxRunes - utf8.RuneCountInString("lock")
	for name, value := range labels {
		room -= utf8.RuneCountInString(name) + utf8.RuneCountInString(value)
	}
	if room < 0 {
		clear(labels)
		room = prometheus.ExemplarMaxRunes - utf8.RuneCountInString("lock")
	}
	labels["lock"] = cut(e.Name, room)
	to.(prometheus.ExemplarObserver).ObserveWithExemplar(value, labels)
}

// cut returns the first n runes of text.
func cut(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

func (c *Collector) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.acquire, c.hold, c.margin, c.request, c.holds, c.waiters, c.renewals, c.leader}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, metric := range c.collectors() {
		metric.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock() // which keeps the leader as it is
	defer c.mu.Unlock()
	c.leader.Reset()
	for _, e := range c.elections {
		leader := c.leader.WithLabelValues(e.Name())
		if _, leads := e.Leading(); leads { // one of several with this name
			leader.Set(1)
		}
	}
	for _, metric := range c.collectors() {
		metric.Collect(to)
	}
}

// Package metrics is what adapters of [holdfast.Hooks] to systems of metrics have in common: the
// groups of names, outcomes and buckets. It needs the standard library alone. The adapters are
// modules of their own, so that a program downloads only what it uses:
//
//   - metrics/holdfastprom: a collector for Prometheus
//   - metrics/holdfastotel: metrics and traces of OpenTelemetry
//
// The folder has a dashboard for Grafana (grafana.json) and rules of alerts (alerts.yaml).
//
// The name of a lock is no label: a name such as invoices/42 would make a time series for each
// invoice. A Grouping reduces names to a few groups, and [Groups] limits how many.
package metrics

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast"
)

// A Grouping returns the group of a lock by its name. It is called for each event, and must return
// the same each time.
type Grouping func(name string) string

// FirstSegment is the Grouping by what is before the first slash or colon of a name: "invoices" for
// invoices/42.
func FirstSegment(name string) string {
	if i := strings.IndexAny(name, "/:"); i >= 0 {
		return name[:i]
	}
	return name
}

// OneOf returns the Grouping of names that are known, each a group of its own; all others are
// [Other].
func OneOf(names ...string) Grouping {
	names = slices.Clone(names)
	return func(name string) string {
		if slices.Contains(names, name) {
			return name
		}
		return Other
	}
}

// Other is the group of all names beyond the first MaxGroups groups.
const Other = "other"

// MaxGroups is how many groups there can be beside Other.
const MaxGroups = 100

// Groups applies a Grouping, and limits the number of its groups.
type Groups struct {
	grouping Grouping

	mu   sync.Mutex
	seen map[string]bool
}

// NewGroups returns Groups for a Grouping. With nil all names are in the group "".
func NewGroups(grouping Grouping) *Groups {
	return &Groups{grouping: grouping, seen: map[string]bool{}}
}

// Of returns the group of a name. It is the same each time. The groups of the first MaxGroups names
// that differ in it are used, and Other for all further ones.
func (g *Groups) Of(name string) string {
	if g.grouping == nil {
		return ""
	}
	group := strings.ToValidUTF8(g.grouping(name), "\uFFFD") // It may have cut a character.
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.seen[group] && len(g.seen) >= MaxGroups || group == Other {
		return Other
	}
	g.seen[group] = true
	return group
}

// Outcome returns how an acquisition ended: acquired, held, timeout, canceled or error. It is ""
// if e is not the end of one.
//
// A wait that its context, Options.Wait or MaxAttempts ended is timeout, canceled or held, while
// the lock was held. A Client that was closed has canceled its acquisitions.
func Outcome(e holdfast.Event) string {
	switch e.Kind {
	case holdfast.EventAcquired, holdfast.EventJoined:
		return "acquired"
	case holdfast.EventRefused, holdfast.EventFailed:
		switch {
		case errors.Is(e.Err, context.Canceled), errors.Is(e.Err, holdfast.ErrClosed):
			return "canceled"
		case e.Kind == holdfast.EventFailed:
			return "error"
		case errors.Is(e.Err, context.DeadlineExceeded):
			return "timeout"
		}
		return "held"
	}
	return ""
}

// End returns how a hold ended: released, kept, handed_over, expired, taken or max_hold. It
// is "" if e is not the end of one.
func End(e holdfast.Event) string {
	switch e.Kind {
	case holdfast.EventReleased:
		return "released"
	case holdfast.EventKept:
		return "kept"
	case holdfast.EventHandedOver:
		return "handed_over"
	case holdfast.EventLost:
		switch {
		case errors.Is(e.Err, holdfast.ErrExpired):
			return "expired"
		case errors.Is(e.Err, holdfast.ErrMaxHold):
			return "max_hold"
		}
		return "taken"
	}
	return ""
}

// Renewal returns the outcome of a renewal: renewed, in_doubt, or lost if it came too late or found
// the lock taken. It is "" if e is none of these.
func Renewal(e holdfast.Event) string {
	switch e.Kind {
	case holdfast.EventRenewed:
		return "renewed"
	case holdfast.EventInDoubt:
		return "in_doubt"
	case holdfast.EventLost:
		if errors.Is(e.Err, holdfast.ErrExpired) || errors.Is(e.Err, holdfast.ErrTaken) {
			return "lost"
		}
	}
	return ""
}

// Margin returns the part of the TTL that was left when a renewal was confirmed, from 0 to 1:
// 0.66 or more when all is well, whatever the TTL.
func Margin(e holdfast.Event) float64 {
	return min(max(e.Left.Seconds()/e.TTL.Seconds(), 0), 1)
}

// RequestOutcome returns the outcome of a request: ok or error.
func RequestOutcome(e holdfast.Event) string {
	if e.Err != nil {
		return "error"
	}
	return "ok"
}

// ErrorType returns a word for an error, of few that there are, "" for nil.
func ErrorType(err error) string {
	if err == nil {
		return ""
	}
	for _, kind := range []struct {
		target error
		word   string
	}{
		{holdfast.ErrHeld, "held"}, {holdfast.ErrLost, "lost"}, {holdfast.ErrClosed, "closed"},
		{holdfast.ErrCorrupt, "corrupt"}, {holdfast.ErrUnsupported, "unsupported"}, {holdfast.ErrInvalid, "invalid"},
		{holdfast.ErrNotHeld, "not_held"}, {holdfast.ErrUnavailable, "unavailable"},
		{context.DeadlineExceeded, "timeout"}, {context.Canceled, "canceled"},
	} {
		if errors.Is(err, kind.target) {
			return kind.word
		}
	}
	return "_OTHER"
}

// AcquireBuckets are the bounds of a histogram of how long acquisitions took, in seconds.
func AcquireBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
}

// HoldBuckets are the bounds of a histogram of how long locks were held, in seconds.
func HoldBuckets() []float64 {
	return []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}
}

// MarginBuckets are the bounds of a histogram of Margin.
func MarginBuckets() []float64 {
	return []float64{.05, .1, .2, .3, .35, .4, .5, .6, .65, .7, .8, .9, 1}
}

// RequestBuckets are the bounds of a histogram of how long requests took, in seconds. Those that
// the default of Config.RequestTimeout cuts, after 3 s, are between 3 and 3.25.
func RequestBuckets() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 3, 3.25, 10}
}

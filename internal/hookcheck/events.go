// Package hookcheck checks, for tests of all stores and of adapters of hooks, that events form pairs.
package hookcheck

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// Events are hooks that check that events form pairs. Each acquisition is known by the context that
// its Start has returned.
type Events struct {
	tb testing.TB

	mu      sync.Mutex
	all     []*acquisition
	held    int // holds that have begun and not ended
	waiting int // waits that have begun and not ended
	counts  map[holdfast.EventKind]int
}

// An acquisition is what the hooks have reported of one.
type acquisition struct {
	start         holdfast.Start
	waits, waited bool
	result        holdfast.EventKind // how it ended, 0 before
	token         int64
	end           holdfast.EventKind // how its hold ended, 0 before
}

type acquisitionKey struct{}

// NewEvents returns Events that have seen nothing.
func NewEvents(tb testing.TB) *Events {
	return &Events{tb: tb, counts: map[holdfast.EventKind]int{}}
}

// Hooks returns the hooks for a Client.
func (v *Events) Hooks() holdfast.Hooks {
	return holdfast.Hooks{Start: v.start, Event: v.event}
}

func (v *Events) start(ctx context.Context, s holdfast.Start) context.Context {
	a := &acquisition{start: s}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = append(v.all, a)
	if s.Op == "" || s.Store == "" || s.Name == "" || s.Holder == "" || s.TTL <= 0 {
		v.tb.Errorf("start: %+v", s)
	}
	return context.WithValue(ctx, acquisitionKey{}, a)
}

func (v *Events) event(ctx context.Context, e holdfast.Event) {
	runtime.Gosched() // The second event of a pair must not come before this returns.
	v.mu.Lock()
	defer v.mu.Unlock()
	v.counts[e.Kind]++
	if e.Store == "" || e.Holder == "" || e.Took < 0 || e.Held < 0 || (e.By != nil) != (e.Kind == holdfast.EventWaiting) {
		v.tb.Errorf("event: %+v", e)
	}
	if e.Kind == holdfast.EventRequest {
		if e.Op == "" {
			v.tb.Errorf("request: %+v", e)
		}
		return
	}
	a, _ := ctx.Value(acquisitionKey{}).(*acquisition)
	if a == nil || e.Name != a.start.Name || e.Holder != a.start.Holder {
		v.tb.Errorf("event %v of %q in the context of %+v", e.Kind, e.Name, a)
		return
	}
	fits := true
	switch e.Kind {
	case holdfast.EventWaiting:
		fits = !a.waits && a.result == 0
		a.waits = true
		v.waiting++
	case holdfast.EventWaited:
		fits = a.waits && !a.waited && a.result == 0
		a.waited = true
		v.waiting--
	case holdfast.EventAcquired, holdfast.EventJoined:
		fits = a.result == 0 && a.waits == a.waited && e.Err == nil
		a.result, a.token = e.Kind, e.Token
		if e.Kind == holdfast.EventAcquired {
			v.held++
		}
	case holdfast.EventRefused, holdfast.EventFailed:
		fits = a.result == 0 && a.waits == a.waited && errors.Is(e.Err, holdfast.ErrHeld) == (e.Kind == holdfast.EventRefused)
		a.result = e.Kind
	case holdfast.EventRenewed, holdfast.EventInDoubt:
		fits = (e.Err != nil) == (e.Kind == holdfast.EventInDoubt) && e.TTL > 0
	case holdfast.EventReleased, holdfast.EventKept, holdfast.EventHandedOver, holdfast.EventLost:
		fits = a.result == holdfast.EventAcquired && a.end == 0 && e.Token == a.token &&
			errors.Is(e.Err, holdfast.ErrLost) == (e.Kind == holdfast.EventLost)
		a.end = e.Kind
		v.held--
	default:
		fits = false
	}
	if !fits || v.held < 0 || v.waiting < 0 {
		v.tb.Errorf("event %v (%+v) does not fit to %+v; %d held, %d waiting", e.Kind, e, *a, v.held, v.waiting)
	}
}

// CheckClosed checks that every pair is complete. The Clients are closed. It returns how often each
// kind of event came.
func (v *Events) CheckClosed() map[holdfast.EventKind]int {
	v.tb.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held != 0 || v.waiting != 0 {
		v.tb.Errorf("%d held and %d waiting after Close", v.held, v.waiting)
	}
	for _, a := range v.all {
		if a.result == 0 || a.waits != a.waited || (a.result == holdfast.EventAcquired) != (a.end != 0) {
			v.tb.Errorf("after Close: %+v", *a)
		}
	}
	return v.counts
}

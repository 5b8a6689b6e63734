package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A caseRun is one run of a case.
type caseRun struct {
	testing.TB
	backing    Backing
	first      *store // over the backing, opened for every case
	guarantees driver.Guarantees
	features   features
	virtual    bool
	slow       bool
	medium     time.Duration
	owners     atomic.Int64
}

// Times. An entry of the length long does not end during a case. One of the length medium, 2 s or
// 10 s, is renewed or released in time unless the machine pauses for that long. Cases wait for the
// end of an entry of the length short.
const (
	long  = time.Hour
	short = 100 * time.Millisecond

	// precision is how much a store may round its times, in either direction. It may round up by
	// Guarantees.Grain in addition.
	precision = 2 * time.Millisecond

	// callTimeout is how long one call of the store may take.
	callTimeout = 30 * time.Second
)

func newCaseRun(tb testing.TB, h Harness, b Backing) *caseRun {
	tb.Helper()
	r := &caseRun{TB: tb, backing: b, virtual: h.Virtual, slow: h.Slow, medium: 2 * time.Second}
	if h.Slow {
		r.medium *= 5
	}
	r.first = r.open()
	r.guarantees = r.first.Guarantees()
	return r
}

// tolerance is how late an event may be that must happen in the end.
func (r *caseRun) tolerance() time.Duration {
	if r.virtual {
		return 10*time.Millisecond + r.guarantees.Grain
	}
	return 15*time.Second + r.guarantees.Grain
}

// turnTimeout is how long it may take until it is the turn of one of many owners. Without a queue
// there are no turns, and some have bad luck.
func (r *caseRun) turnTimeout() time.Duration {
	switch {
	case r.virtual && !r.guarantees.Queue:
		return 5 * time.Second
	case r.virtual:
		return 200*time.Millisecond + r.guarantees.Grain
	case r.slow:
		return 5 * callTimeout
	}
	return callTimeout
}

// sleepPast waits until what lasts for d from now, by the store's clock, must have ended.
func (r *caseRun) sleepPast(d time.Duration) { time.Sleep(d + r.guarantees.Grain + 2*precision) }

// callContext returns a context for one call of the store.
func (r *caseRun) callContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), callTimeout)
}

// open opens a store that is closed at the end of the case.
func (r *caseRun) open() *store {
	return r.adopt(r.backing.Open(r))
}

// adopt returns a store as cases use it, which is closed at the end of the case.
func (r *caseRun) adopt(s driver.Store) *store {
	// Cases that close the store themselves check the error of Close.
	r.Cleanup(func() { _ = s.Close() })
	c := &store{Store: s, run: r}
	if n, ok := s.(driver.Notifier); ok {
		var stop func()
		c.log, stop = listen(n)
		r.Cleanup(stop)
	}
	return c
}

// other returns a store that shares only the backing with the first. Of a store in the memory of
// the process it returns the first.
func (r *caseRun) other() *store {
	if !r.features.has(processes) {
		return r.first
	}
	return r.open()
}

// newOwner returns a new owner secret.
func (r *caseRun) newOwner() string {
	return fmt.Sprintf("%04dSecretOfOwner", r.owners.Add(1))
}

// expectNoSecret fails the case if the values, or their error texts, contain an owner secret.
func (r *caseRun) expectNoSecret(what string, values ...any) {
	r.Helper()
	for _, value := range values {
		if text := fmt.Sprintf("%+v %#v", value, value); strings.Contains(text, "OfOwner") {
			r.Errorf("%s shows an owner secret: %s", what, text)
		}
	}
}

// poll calls done until it reports true, and reports whether it did within the tolerance after due.
// The nearer due is, the shorter are the pauses between calls.
func (r *caseRun) poll(due time.Time, done func() bool) bool {
	for {
		if done() {
			return true
		}
		left := time.Until(due)
		if left < -r.tolerance() {
			return false
		}
		time.Sleep(max(left/16, time.Millisecond, -left/16))
	}
}

// parallel calls f for 0..n-1, all at once, and fails the case with the errors.
func (r *caseRun) parallel(n int, f func(i int) error) {
	r.Helper()
	errs := make([]error, n)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-begin
			errs[i] = f(i)
		})
	}
	close(begin)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		r.Fatal(err)
	}
}

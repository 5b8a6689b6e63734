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

// A run is one case under way.
type run struct {
	testing.TB
	backing    Backing
	first      *client // a store over the backing, opened for every case
	guarantees driver.Guarantees
	have       needs
	virtual    bool
	owners     atomic.Int64
}

// Times. A hold of the length long does not run out during a case. One of the
// length medium is renewed or released in time unless the machine stands still
// for that long. One of the length short is waited for.
const (
	long   = time.Hour
	medium = 2 * time.Second
	short  = 100 * time.Millisecond

	// precision is what a store may round its times by, in either direction.
	precision = 2 * time.Millisecond

	// callBound is how long one call of the store may take.
	callBound = 30 * time.Second
)

// slack is how late something may happen that must happen in the end.
func (r *run) slack() time.Duration {
	if r.virtual {
		return 10 * time.Millisecond
	}
	return 15 * time.Second
}

// patience is how long it may take to get a name that others let go of again
// and again.
func (r *run) patience() time.Duration {
	if r.virtual {
		return 200 * time.Millisecond
	}
	return callBound
}

// bound returns a context for one call of the store.
func (r *run) bound() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), callBound)
}

// open opens a store that the case closes in the end.
func (r *run) open() *client {
	r.Helper()
	return r.adopt(r.backing.Open(r))
}

func (r *run) adopt(s driver.Store) *client {
	// Cases that close the store themselves look at the error of Close.
	r.Cleanup(func() { _ = s.Close() })
	return &client{Store: s, r: r}
}

// other returns a store that shares nothing with the first but the backing; for
// a store of one process it is the first, which all share.
func (r *run) other() *client {
	r.Helper()
	if !r.have.has(processes) {
		return r.first
	}
	return r.open()
}

// owner makes an owner secret.
func (r *run) owner() string {
	return fmt.Sprintf("%04dSecretOfOwner", r.owners.Add(1))
}

// hides fails the case if anything in value, or its error text, has an owner
// secret in it.
func (r *run) hides(what string, values ...any) {
	r.Helper()
	for _, value := range values {
		if text := fmt.Sprintf("%+v", value); strings.Contains(text, "OfOwner") {
			r.Errorf("%s shows an owner secret: %s", what, text)
		}
	}
}

// poll calls done until it reports true, and reports whether it did within the
// slack after due. The calls come the thicker the nearer due is.
func (r *run) poll(due time.Time, done func() bool) bool {
	for {
		if done() {
			return true
		}
		left := time.Until(due)
		if left < -r.slack() {
			return false
		}
		time.Sleep(max(left/16, time.Millisecond, -left/16))
	}
}

// each calls f for 0..n-1, all at once, and fails the case with their errors.
func (r *run) each(n int, f func(i int) error) {
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

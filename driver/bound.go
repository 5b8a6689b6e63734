package driver

import (
	"context"
	"sync"
	"time"
)

// A Bound is a context for one request. It ends with another context, or when its
// time is up, as one of [context.WithTimeout] does, but costs next to nothing if
// nobody waits for that: it has no timer, and is not known to the other context,
// until Done is called. Most requests are answered before. A store that has its
// own way of waiting asks [Ends] for what to wait for, and leaves Done alone.
type Bound struct {
	parent   context.Context
	deadline time.Time
	inherits bool // the deadline is the parent's, who ends by himself then

	mu     sync.Mutex
	full   context.Context // made by Done
	cancel context.CancelFunc
	ended  bool
	err    error // what Err has returned, unless it was nil
}

var _ context.Context = (*Bound)(nil)

// WithBound returns a context that ends with parent, but d from now at the
// latest. End must be called when the request is over.
func WithBound(parent context.Context, d time.Duration) *Bound {
	b := &Bound{parent: parent, deadline: time.Now().Add(d)}
	if limit, ok := parent.Deadline(); ok && limit.Before(b.deadline) {
		b.deadline, b.inherits = limit, true
	}
	return b
}

// End ends the context, and frees what it holds.
func (b *Bound) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	if b.cancel != nil {
		b.cancel()
	}
}

// Deadline implements [context.Context].
func (b *Bound) Deadline() (time.Time, bool) { return b.deadline, true }

// Done implements [context.Context].
func (b *Bound) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full == nil {
		b.full, b.cancel = context.WithDeadline(b.parent, b.deadline)
		if b.ended || b.err != nil {
			b.cancel()
		}
	}
	return b.full.Done()
}

// Err implements [context.Context].
func (b *Bound) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = b.end()
	}
	return b.err
}

// end returns why the context is over, nil before.
func (b *Bound) end() error {
	switch {
	case b.full != nil && b.full.Err() != nil:
		return b.full.Err()
	case b.parent.Err() != nil: // full may hear of it later
		return b.parent.Err()
	case b.ended:
		return context.Canceled
	case !b.inherits && !time.Now().Before(b.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements [context.Context].
func (b *Bound) Value(key any) any {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full != nil {
		return b.full.Value(key) // so that contexts made of this one find its end
	}
	return b.parent.Value(key)
}

// Ends returns what ends a context: a channel that is closed when it is
// cancelled, nil if it cannot be, and a moment at which it ends at the latest,
// zero if the channel tells of that as well.
func Ends(ctx context.Context) (cancelled <-chan struct{}, deadline time.Time) {
	b, ok := ctx.(*Bound)
	switch {
	case !ok:
		return ctx.Done(), time.Time{}
	case b.inherits: // It must not end before the parent has.
		return b.parent.Done(), time.Time{}
	}
	return b.parent.Done(), b.deadline
}

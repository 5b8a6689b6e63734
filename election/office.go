package election

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// An office is the term of this candidate while it lasts, and the context of it.
type office struct {
	context.Context
	lock    *holdfast.Lock
	term    Term
	end     context.CancelCauseFunc
	reason  error         // why the term is over; set before told is closed
	told    chan struct{} // closed when Deposed has been called
	vacated chan struct{} // closed when the lock is released
}

// Err implements [context.Context]. The lock reads the clock, and ends the
// context inside when its time is over, so that this is right before the timer
// has fired.
func (h *office) Err() error {
	if h.lock.Err() != nil {
		<-h.Done()
	}
	return h.Context.Err()
}

// take begins the term of a candidate that has just got the lock under which
// work runs.
func (e *Election) take(work context.Context) *office {
	h := &office{
		lock:    holdfast.FromContext(work),
		told:    make(chan struct{}),
		vacated: make(chan struct{}),
	}
	h.term = Term{Leader: h.lock.Holder(), Token: h.lock.Token(), Since: time.Now().Round(0), Metadata: h.lock.Metadata()}
	h.Context, h.end = context.WithCancelCause(work)
	e.log.InfoContext(work, "elected", "election", e.name, "token", h.term.Token)
	if e.o.Elected != nil {
		e.o.Elected(h.term)
	}
	context.AfterFunc(h.Context, func() {
		h.reason = context.Cause(h.Context)
		if e.o.Deposed != nil {
			e.o.Deposed(h.term, h.reason)
		}
		close(h.told)
	})
	e.mu.Lock()
	e.office = h
	e.mu.Unlock()
	return h
}

// leave ends the term when its function has returned, and waits until Deposed
// has been told.
func (h *office) leave() {
	h.end(errLeft)
	<-h.told
}

// vacate tells those who wait for it that the office is free.
func (e *Election) vacate(h *office) {
	e.mu.Lock()
	e.office = nil
	e.mu.Unlock()
	close(h.vacated)
}

// errLeft ends a term whose function has returned.
var errLeft = fmt.Errorf("election: the function has returned: %w", holdfast.ErrReleased)

// left reports whether the term is over because its function has returned.
func (h *office) left() bool { return h.reason == errLeft }

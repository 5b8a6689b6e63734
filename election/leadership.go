package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// leadership is the context that is passed to lead. It is done when the term ends.
type leadership struct {
	context.Context
	lock       *holdfast.Lock
	term       Term
	end        context.CancelCauseFunc
	reason     error         // why the term is over; set when lead has returned
	releaseErr error         // why the lock may still be held; set before released is closed
	released   chan struct{} // closed when the lock is released, or its release has failed
}

// Err implements [context.Context]. The lock reads the clock, and ends the
// embedded context when its time is over. So Err is right before the timer has
// fired.
func (l *leadership) Err() error {
	if l.lock.Err() != nil {
		<-l.Done()
	}
	return l.Context.Err()
}

// beginTerm begins the term of a candidate that has just acquired the lock.
// The context lockCtx is the context of the lock.
func (e *Election) beginTerm(lockCtx context.Context) *leadership {
	l := &leadership{lock: holdfast.FromContext(lockCtx), released: make(chan struct{})}
	l.term = Term{
		Leader:   l.lock.Holder(),
		Token:    l.lock.Token(),
		Since:    time.Now().Round(0),
		Metadata: l.lock.Metadata(),
	}
	l.Context, l.end = context.WithCancelCause(lockCtx)
	e.mu.Lock()
	e.current = l
	e.mu.Unlock()
	e.log.InfoContext(lockCtx, "elected", "election", e.name, "token", l.term.Token)
	return l
}

// releaseLock releases the lock of the term, and wakes the calls of Resign that
// wait for it.
func (e *Election) releaseLock(l *leadership) {
	if err := l.lock.Release(); !errors.Is(err, holdfast.ErrLost) {
		l.releaseErr = err
	}
	e.mu.Lock()
	e.current = nil
	e.mu.Unlock()
	close(l.released)
}

// errLeadReturned ends a term when lead has returned.
var errLeadReturned = fmt.Errorf("election: the function has returned: %w", holdfast.ErrReleased)

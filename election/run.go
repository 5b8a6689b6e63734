package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Run stands as a candidate until it is elected. It then calls lead with the term, and with a
// context that is valid for as long as this replica leads. The context ends, with the reason as its
// context.Cause:
//   - when the lock is lost, at the latest at the moment until which the store had promised it
//     (holdfast.ErrLost);
//   - when Resign is called (ErrResigned);
//   - when ctx ends.
//
// Lead must return soon after that. What it returns then is only logged.
//
// After a loss, a resignation or Client.ReleaseAll, Run stands again. It returns:
//   - what lead returns while its context is valid, nil too: the work is done. The error is joined
//     with holdfast.ErrLost if the lock turns out to be lost when it is released;
//   - ctx.Err() when ctx has ended and lead has returned;
//   - an error that every further attempt would return again: holdfast.ErrInvalid, ErrUnsupported,
//     ErrCorrupt, ErrClosed, or ErrRunning.
//
// Run tries a store that cannot be reached again for as long as it takes. When Run returns, the
// lock is free, unless its release could not be confirmed. Then the error matches
// holdfast.ErrUnavailable, and the lock is free after the TTL at the latest. If lead panics, the
// lock is released and the panic goes on.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, term Term) error) error {
	if e.locks == nil || lead == nil {
		return fmt.Errorf("election: %w: the Client or the function is nil", holdfast.ErrInvalid)
	}
	if !e.running.TryLock() {
		return ErrRunning
	}
	defer e.running.Unlock()
	tries := 0 // to be elected, since the last term
	for {
		term, err := e.campaign(ctx, lead)
		delay := e.o.ResignDelay
		switch {
		case term != nil && term.reason == errLeadReturned && !errors.Is(err, ErrResigned):
			return err
		case ctx.Err() != nil && errors.Is(err, holdfast.ErrUnavailable): // the release is not confirmed
			return fmt.Errorf("%w (and %w)", ctx.Err(), err)
		case ctx.Err() != nil:
			return ctx.Err()
		case term == nil && driver.Permanent(err), term != nil && errors.Is(term.reason, holdfast.ErrClosed):
			return err
		case term == nil:
			e.log.WarnContext(ctx, "candidate cannot reach the store", "election", e.name, "err", err)
			delay = retry.Backoff(tries, 100*time.Millisecond, 3*time.Second)
			tries++
		default:
			if tries = 0; errors.Is(term.reason, holdfast.ErrLost) {
				delay = 0
			}
		}
		if err := retry.Sleep(ctx, delay); err != nil {
			return err
		}
	}
}

// campaign waits until the candidate is elected, and leads for one term. It returns nil if the
// candidate was not elected.
func (e *Election) campaign(ctx context.Context, lead func(context.Context, Term) error) (current *leadership, err error) {
	defer func() { // also after a panic
		if current == nil {
			return
		}
		if err := current.lock.Release(); !errors.Is(err, holdfast.ErrLost) {
			current.releaseErr = err
		}
		e.current.Store(nil)
		close(current.released)
	}()
	o := holdfast.Options{TTL: e.o.TTL, Metadata: e.o.Metadata}
	err = e.locks.Do(ctx, e.name, &o, func(lockCtx context.Context) error {
		lock := holdfast.FromContext(lockCtx)
		current = &leadership{lock: lock, released: make(chan struct{}), term: Term{
			Leader: lock.Holder(), Token: lock.Token(), Since: time.Now().Round(0), Metadata: lock.Metadata(),
		}}
		current.Context, current.end = context.WithCancelCause(lockCtx)
		e.current.Store(current)
		e.log.InfoContext(lockCtx, "elected", "election", e.name, "token", current.term.Token)
		defer func() {
			current.end(errLeadReturned)
			current.reason = context.Cause(current.Context)
		}()
		return lead(current, current.term)
	})
	if current != nil {
		e.log.InfoContext(ctx, "term over", "election", e.name,
			"token", current.term.Token, "reason", current.reason, "err", err)
	}
	return current, err
}

// errLeadReturned ends a term when lead has returned.
var errLeadReturned = fmt.Errorf("election: the function has returned: %w", holdfast.ErrReleased)

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

// Err implements [context.Context]. The lock reads the clock, and ends the embedded context when
// its time is over. So Err is right before the timer has fired.
func (l *leadership) Err() error {
	if l.lock.Err() != nil {
		<-l.Done()
	}
	return l.Context.Err()
}

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

// Run stands as a candidate until it is elected. It then calls lead with the term,
// and with a context that is valid for as long as this replica leads. The context
// ends, with the reason as its context.Cause:
//   - when the lock is lost, at the latest at the moment until which the store had
//     promised it (holdfast.ErrLost);
//   - when Resign is called (ErrResigned);
//   - when ctx ends.
//
// Lead must return soon after that. What it returns then is only logged.
//
// After a loss, a resignation or Client.ReleaseAll, Run stands again. It returns:
//   - what lead returns while its context is valid, nil too: the work is done.
//     The error is joined with holdfast.ErrLost if the lock turns out to be lost
//     when it is released;
//   - ctx.Err() when ctx has ended and lead has returned;
//   - an error that every further attempt would return again:
//     holdfast.ErrInvalid (also if the Client, ctx or lead is nil),
//     ErrUnsupported, ErrCorrupt, ErrClosed, or ErrRunning.
//
// Run tries a store that cannot be reached again for as long as it takes. When
// Run returns, the lock is free, unless its release could not be confirmed. Then the
// error matches holdfast.ErrUnavailable, and the lock is free after the TTL at the
// latest. If lead panics, the lock is released and the panic goes on.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, term Term) error) error {
	switch {
	case e.locks == nil:
		return e.noClientError()
	case ctx == nil:
		return fmt.Errorf("election: %q: %w: ctx is nil", e.name, holdfast.ErrInvalid)
	case lead == nil:
		return fmt.Errorf("election: %q: %w: the function is nil", e.name, holdfast.ErrInvalid)
	}
	if err := e.beginRun(); err != nil {
		return err
	}
	defer e.endRun()
	for tries := 0; ; tries++ {
		end, err := e.campaign(ctx, lead)
		delay := time.Duration(0)
		switch {
		case end == campaignFinished:
			return err
		case ctx.Err() != nil:
			return withUnconfirmedRelease(ctx.Err(), err)
		case end == campaignClosed:
			return err
		case end == campaignResigned:
			tries, delay = 0, e.o.ResignDelay
		case end == campaignLost:
			tries = 0
		case driver.Permanent(err):
			return err
		default:
			e.log.WarnContext(ctx, "candidate cannot reach the store", "election", e.name, "err", err)
			delay = retry.Backoff(tries, 100*time.Millisecond, 3*time.Second)
		}
		if err := retry.Sleep(ctx, delay); err != nil {
			return err
		}
	}
}

// beginRun registers a call of Run. There can be one at a time.
func (e *Election) beginRun() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		return ErrRunning
	}
	e.running = true
	return nil
}

func (e *Election) endRun() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
}

// A campaignEnd is how a campaign ended.
type campaignEnd int

const (
	campaignFailed   campaignEnd = iota // the candidate was not elected
	campaignFinished                    // lead returned during its term
	campaignEnded                       // Run's context ended
	campaignClosed                      // the Client was closed
	campaignResigned                    // the candidate resigned, or Client.ReleaseAll was called
	campaignLost                        // the lock was lost
)

// campaign waits until the candidate is elected, and leads for one term.
func (e *Election) campaign(
	ctx context.Context, lead func(context.Context, Term) error,
) (campaignEnd, error) {
	var current *leadership
	defer func() {
		if current != nil { // also after a panic
			e.releaseLock(current)
		}
	}()
	o := holdfast.Options{TTL: e.o.TTL, Metadata: e.o.Metadata}
	err := e.locks.Do(ctx, e.name, &o, func(lockCtx context.Context) error {
		current = e.beginTerm(lockCtx)
		defer current.finish()
		return lead(current, current.term)
	})
	if current == nil {
		return campaignFailed, err
	}
	e.log.InfoContext(ctx, "term over", "election", e.name,
		"token", current.term.Token, "reason", current.reason, "err", err)
	switch {
	case errors.Is(current.reason, ErrResigned), current.leadReturned() && errors.Is(err, ErrResigned):
		return campaignResigned, err
	case errors.Is(current.reason, holdfast.ErrLost):
		return campaignLost, err
	case current.leadReturned():
		return campaignFinished, err
	case errors.Is(current.reason, holdfast.ErrClosed):
		return campaignClosed, err
	case errors.Is(current.reason, holdfast.ErrReleased): // by Client.ReleaseAll
		return campaignResigned, err
	}
	return campaignEnded, err
}

// withUnconfirmedRelease returns ctxErr, the error of Run's context. It adds err if
// err shows that the release of the lock was not confirmed.
func withUnconfirmedRelease(ctxErr, err error) error {
	if errors.Is(err, holdfast.ErrUnavailable) {
		return fmt.Errorf("%w (and %w)", ctxErr, err)
	}
	return ctxErr
}

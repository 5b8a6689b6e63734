package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
)

// Run stands as a candidate until it is elected, and then calls lead with a
// context that is valid for as long as this replica leads, and with the term. It
// ends, with the reason as its context.Cause: when the lock of the office is
// lost, at the latest at the moment until which the store had promised it
// (holdfast.ErrLost); when Resign is called (ErrResigned); and when ctx ends.
// Lead must return soon after that; what it returns then counts only for the
// log.
//
// After a loss or a resignation Run stands again. It returns:
//   - what lead returns while its context is valid, nil too: the work is done.
//     It is joined with holdfast.ErrLost if the office turns out to be lost
//     when it is given back;
//   - ctx.Err() when ctx has ended and lead has returned;
//   - an error that would come again however often it were tried:
//     holdfast.ErrInvalid, ErrUnsupported, ErrCorrupt, ErrClosed, or ErrRunning.
//
// A store that cannot be reached is tried again for as long as it takes. When
// Run returns the office is free, unless its release could not be confirmed: the
// error says so then (holdfast.ErrUnavailable), and the office is free after the
// TTL at the latest. If lead panics, the office is given back and the panic goes
// on.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, term Term) error) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	for tries := 0; ; tries++ {
		end, err := e.campaign(ctx, lead)
		pause := time.Duration(0)
		switch {
		case end == finished:
			return err
		case ctx.Err() != nil:
			return unconfirmed(ctx.Err(), err)
		case end == resigned:
			tries, pause = 0, e.o.StandBack
		case end == lost:
			tries = 0
		case permanent(err):
			return err
		default:
			e.log.WarnContext(ctx, "candidate cannot reach the store", "election", e.name, "err", err)
			pause = retryPause(tries)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// enter registers the one Run of this candidate.
func (e *Election) enter() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running {
		return ErrRunning
	}
	e.running = true
	return nil
}

func (e *Election) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
}

// An ending is how a campaign ended.
type ending int

const (
	failed   ending = iota // it was not elected
	finished               // the function returned while it led
	ended                  // Run's context did
	resigned
	lost
)

// campaign waits for the office and holds it once.
func (e *Election) campaign(ctx context.Context, lead func(context.Context, Term) error) (ending, error) {
	var held *office
	defer func() {
		if held != nil { // after a panic, too
			e.vacate(held)
		}
	}()
	o := holdfast.Options{TTL: e.o.TTL, Metadata: e.o.Metadata}
	err := e.locks.Do(ctx, e.name, &o, func(work context.Context) error {
		held = e.take(work)
		defer held.leave()
		return lead(held, held.term)
	})
	if held == nil {
		return failed, err
	}
	e.log.InfoContext(ctx, "term over", "election", e.name, "token", held.term.Token, "reason", held.reason, "err", err)
	switch {
	case errors.Is(held.reason, ErrResigned), held.left() && errors.Is(err, ErrResigned):
		return resigned, err
	case errors.Is(held.reason, holdfast.ErrLost):
		return lost, err
	case held.left():
		return finished, err
	case errors.Is(held.reason, holdfast.ErrReleased): // by Client.ReleaseAll or Close
		return resigned, err
	}
	return ended, err
}

// unconfirmed is the end of Run's context, and that the office may not be free.
func unconfirmed(cut, err error) error {
	if errors.Is(err, holdfast.ErrUnavailable) {
		return fmt.Errorf("%w (and %w)", cut, err)
	}
	return cut
}

// permanent reports whether an error would come again.
func permanent(err error) bool {
	for _, lasting := range []error{holdfast.ErrInvalid, holdfast.ErrUnsupported, holdfast.ErrCorrupt, holdfast.ErrClosed} {
		if errors.Is(err, lasting) {
			return true
		}
	}
	return false
}

// retryPause grows from 100 ms to 3 s, drawn from the upper half.
func retryPause(tries int) time.Duration {
	d := min(100*time.Millisecond<<min(tries, 10), 3*time.Second)
	return d/2 + rand.N(d/2)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

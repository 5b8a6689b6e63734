package election

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// Leader returns the term that is in force as far as the store knows, of this candidate or of
// another. The result may be out of date. It is for people and for routing, and never entitles a
// process to act as the leader. Errors: ErrNoLeader; holdfast.ErrUnavailable;
// holdfast.ErrUnsupported if the store cannot look locks up; holdfast.ErrInvalid.
func (e *Election) Leader(ctx context.Context) (Term, error) {
	holds, err := e.locks.Lookup(ctx, e.name)
	switch {
	case errors.Is(err, holdfast.ErrNotHeld), err == nil && holds[0].Kept:
		return Term{}, ErrNoLeader
	case err != nil:
		return Term{}, err
	}
	rec := holds[0]
	return Term{Leader: rec.Holder, Token: rec.Token, Since: rec.Since, Metadata: rec.Metadata}, nil
}

// Observe yields the term in force, and then each change: a new term, or the zero Term when no
// candidate leads. It looks the leader up every 250 ms. A term that begins and ends between two
// lookups is not yielded. The tokens that it yields rise. A lookup that fails is yielded as an
// error, and Observe goes on. It ends when ctx does.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Term, error] {
	return func(yield func(Term, error) bool) {
		var last Term
		yielded := false // whether last is valid
		for ctx.Err() == nil {
			term, err := e.Leader(ctx)
			noLeader := errors.Is(err, ErrNoLeader)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && !noLeader:
				if !yield(Term{}, err) {
					return
				}
			case !yielded || term.Leader != last.Leader || term.Token != last.Token ||
				term.Token == 0 && !term.Since.Equal(last.Since): // a store without tokens
				if !yield(term, nil) {
					return
				}
				yielded, last = true, term
			}
			if retry.Sleep(ctx, 250*time.Millisecond) != nil {
				return
			}
		}
	}
}

package election

import (
	"context"
	"errors"
	"iter"

	"github.com/holdfast-go/holdfast"
)

// Leader returns the term that is in force as far as the store knows, whoever
// leads. It is a picture of the past, for people and for routing; never a ground
// to act as the leader. Errors: ErrNoLeader; holdfast.ErrUnavailable;
// holdfast.ErrUnsupported if the store cannot look locks up.
func (e *Election) Leader(ctx context.Context) (Term, error) {
	rec, err := e.locks.Lookup(ctx, e.name)
	switch {
	case errors.Is(err, holdfast.ErrNotHeld), err == nil && rec.Kept:
		return Term{}, ErrNoLeader
	case err != nil:
		return Term{}, err
	}
	return Term{Leader: rec.Holder, Token: rec.Token, Since: rec.Since, Metadata: rec.Metadata}, nil
}

// Observe yields the term in force, and then each change: a new term, or the
// zero Term when nobody leads. It looks every Options.Poll, so that a term that
// began and ended in between is not seen; the tokens it yields rise. A look that
// fails is yielded as an error, and the looks go on. It ends when ctx does.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Term, error] {
	return func(yield func(Term, error) bool) {
		var seen Term
		told := false
		for ctx.Err() == nil {
			term, err := e.Leader(ctx)
			vacant := errors.Is(err, ErrNoLeader)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && !vacant:
				if !yield(Term{}, err) {
					return
				}
			case !told || !same(term, seen):
				if !yield(term, nil) {
					return
				}
				told, seen = true, term
			}
			if sleep(ctx, e.o.Poll) != nil {
				return
			}
		}
	}
}

// same reports whether two looks have seen one term. Where the store gives no
// tokens, the begin tells terms apart.
func same(a, b Term) bool {
	if a.Token != b.Token || a.Leader != b.Leader {
		return false
	}
	return a.Token != 0 || a.Since.Equal(b.Since)
}

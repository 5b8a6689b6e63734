package holdfast

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// A Record describes the holder of a lock, for people and tools. It is a picture of the past: do
// not act on it as if it were a held lock.
type Record = driver.Record

// Lookup returns the holder of a lock. If nobody holds the lock, the error matches [ErrNotHeld].
// If ctx is canceled during the request, Lookup returns when the request is answered, or after
// Config.RequestTimeout. It returns at most a second after the deadline of ctx.
func (c *Client) Lookup(ctx context.Context, name string) (Record, error) {
	full, err := c.fullName(name)
	if err != nil {
		return Record{}, opError("look up", name, err)
	}
	rec, err := c.lookupRecord(ctx, full)
	if err != nil {
		return Record{}, opError("look up", name, err)
	}
	rec.Name = name
	return rec, nil
}

// lookupRecord is Lookup with the name in the store.
func (c *Client) lookupRecord(ctx context.Context, full string) (Record, error) {
	return c.requestRecord(ctx, "lookup", func(ctx context.Context) (Record, bool, error) {
		return c.store.Lookup(ctx, full)
	})
}

// requestRecord makes a request for a record. It returns ErrNotHeld if there is none.
func (c *Client) requestRecord(ctx context.Context, op string, call func(context.Context) (Record, bool, error)) (Record, error) {
	if ctx == nil {
		return Record{}, errNoContext
	}
	if err := c.beginCall(); err != nil {
		return Record{}, err
	}
	defer c.activeCalls.Done()
	rec, err := request(c, ctx, op, c.requestTimeout, func(ctx context.Context) (Record, error) {
		rec, found, err := call(ctx)
		if err == nil && !found {
			err = ErrNotHeld
		}
		return rec, err
	})
	if err != nil && !errors.Is(err, ErrNotHeld) {
		err = storeError(ctx, err)
	}
	return rec, err
}

// List yields the locks that are held, or kept after their release, and have names that begin with
// prefix, in no order. An error that concerns one record is yielded, and the listing goes on. It
// is bounded by ctx alone.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		err := c.configErr
		if err == nil && ctx == nil {
			err = errNoContext
		}
		if err == nil {
			err = c.beginCall()
		}
		if err != nil {
			yield(Record{}, opError("list", prefix, err))
			return
		}
		defer c.activeCalls.Done()
		for rec, err := range c.store.List(ctx, c.prefix+prefix) {
			if err != nil {
				rec, err = Record{}, opError("list", prefix, storeError(ctx, err))
			} else {
				rec.Name = c.stripPrefix(rec.Name)
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// Break ends the hold of a lock, whichever client has it, and returns the record of that hold.
// The holder is not notified: it learns of it by its next renewal, so its work goes on for up to
// a third of its TTL, and only a fencing token keeps it from doing harm. If nobody holds the
// lock, the error matches [ErrNotHeld].
//
// If the error is ErrUnavailable, the lock may have been broken or not.
//
// By the time of the request the lock may have another holder. [Client.BreakToken] does not break
// the hold of that one.
func (c *Client) Break(ctx context.Context, name string) (Record, error) {
	return c.breakHold(ctx, name, 0)
}

// BreakToken is [Client.Break] of the hold with the given token, which a [Record] shows, and of no
// other: the store compares the token in the same step. If the lock is free, or its Record has
// another token or none, BreakToken changes nothing, and the error matches [ErrNotHeld]. A name
// that is kept after its release has the token of its former hold if the store knows that, which
// Redis does not. A token below 1 is ErrInvalid. It is harmless to repeat a call after
// ErrUnavailable.
//
// A lock that was passed on (see Config.LocalTurn) is broken by its own token on the Client that
// holds it, and by the token that the store shows everywhere. The tokens of the holds between these
// break nothing.
func (c *Client) BreakToken(ctx context.Context, name string, token int64) (Record, error) {
	if token < 1 {
		return Record{}, opError("break", name, fmt.Errorf("%w: the token %d is below 1", ErrInvalid, token))
	}
	return c.breakHold(ctx, name, token)
}

// breakHold is BreakToken, or Break if the token is 0.
func (c *Client) breakHold(ctx context.Context, name string, token int64) (Record, error) {
	full, err := c.fullName(name)
	if err != nil {
		return Record{}, opError("break", name, err)
	}
	if token > 0 {
		token = c.storeToken(full, token)
	}
	rec, err := c.requestRecord(ctx, "break", func(ctx context.Context) (Record, bool, error) {
		return c.store.Break(ctx, driver.BreakRequest{Name: full, Token: token})
	})
	if err != nil {
		return Record{}, opError("break", name, err)
	}
	rec.Name = name
	c.loseLeases(ErrBroken, func(l *lease) bool {
		return l.hasToken(full, rec.Token) || slices.ContainsFunc(rec.Others, func(other Record) bool { return l.hasToken(full, other.Token) })
	})
	return rec, nil
}

// hasToken reports whether the token is one of the grant of a lease of the name.
func (l *lease) hasToken(full string, token int64) bool {
	return l.fullName == full && l.firstToken <= token && token <= l.lastToken()
}

// leaseWithToken returns the lease of the Client that has the token, or nil. The caller holds c.mu.
func (c *Client) leaseWithToken(full string, token int64) *lease {
	if token == 0 {
		return nil
	}
	for h := range c.queues[full].allHeads() {
		if h.lease != nil && h.lease.hasToken(full, token) {
			return h.lease
		}
	}
	for l := range c.unqueued {
		if l.hasToken(full, token) {
			return l
		}
	}
	return nil
}

// holdsToken reports whether a hold of the Client has the token.
func (c *Client) holdsToken(full string, token int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaseWithToken(full, token) != nil
}

// loseLeases ends the leases that match, and any hold that one of them was passed on to.
func (c *Client) loseLeases(reason error, match func(*lease) bool) {
	c.mu.Lock()
	leases := c.leasesToEndLocked(match)
	c.mu.Unlock()
	for _, l := range leases {
		l.markLost(reason)
	}
}

package holdfast

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Record describes the holder of a lock, for people and tools. It is a picture of the past: do
// not act on it as if it were a held lock.
type Record = driver.Record

// Lookup returns the holds of a lock, oldest first; a name that is kept after its release counts.
// If there is none, the error matches [ErrNotHeld]. The ctx ends it as it ends [Client.Acquire].
func (c *Client) Lookup(ctx context.Context, name string) ([]Record, error) {
	return c.requestRecords(ctx, "look up", "lookup", name, func(ctx context.Context) ([]Record, error) {
		return c.store.Lookup(ctx, c.config.Prefix+name)
	})
}

// requestRecords makes a request for the records of a name.
func (c *Client) requestRecords(
	ctx context.Context, what, op, name string, call func(context.Context) ([]Record, error),
) ([]Record, error) {
	if err := c.begin(ctx, nil, name); err != nil {
		return nil, opError(what, name, err)
	}
	defer c.activeCalls.Done()
	records, err := request(c, ctx, op, c.config.RequestTimeout, call)
	switch {
	case err != nil:
		return nil, opError(what, name, storeError(ctx, err))
	case len(records) == 0:
		return nil, opError(what, name, ErrNotHeld)
	}
	for i := range records {
		records[i].Name = name
	}
	return records, nil
}

// List yields the locks that are held, or kept after their release, and have names that begin with
// prefix, in no order. An error that concerns one record is yielded, and the listing goes on. It is
// bounded by ctx alone.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := c.begin(ctx, nil); err != nil {
			yield(Record{}, fmt.Errorf("holdfast: list: %w", err))
			return
		}
		defer c.activeCalls.Done()
		for rec, err := range c.store.List(ctx, c.config.Prefix+prefix) {
			if err != nil {
				rec, err = Record{}, fmt.Errorf("holdfast: list: %w", storeError(ctx, err))
			} else {
				rec.Name = c.stripPrefix(rec.Name)
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// Break ends the hold of a lock that has the token, whichever client has it, and for token 0 all
// its holds; a name that is kept after its release is free then. It returns the records of what it
// ended. If there is no such hold, the error matches [ErrNotHeld]. The store compares the token in
// the same step, so a Break with the token of a [Record] never ends the hold of a later holder;
// with 0 it may.
//
// The context of the holder ends as soon as it is notified, where the store does that, and with its
// next renewal otherwise, at most a third of its TTL later, or with NoRenew at its deadline. Until
// then its work goes on, and only a fencing token keeps it from doing harm. A lock that is passed
// on among the goroutines of a Client (see Config.LocalTurn) is broken by the token of each of
// them.
//
// If the error is ErrUnavailable, the lock may have been broken or not. With a token, it is
// harmless to repeat the call. A token below 0 is [ErrInvalid].
func (c *Client) Break(ctx context.Context, name string, token int64) ([]Record, error) {
	if token < 0 {
		return nil, opError("break", name, fmt.Errorf("%w: the token %d is below 0", ErrInvalid, token))
	}
	records, err := c.requestRecords(ctx, "break", "break", name, func(ctx context.Context) ([]Record, error) {
		return c.store.Break(ctx, c.config.Prefix+name, token)
	})
	for _, lock := range c.Locks() { // It may have been one of this Client.
		l := lock.lease
		if slices.ContainsFunc(records, func(r Record) bool { return r.Name == lock.Name() && l.tokens.has(r.Token) }) {
			l.lose(ErrTaken)
		}
	}
	return records, err
}

// Ping reports whether the store can be used for locks at this moment, for readiness probes. It
// acquires a lock that no other caller uses and releases it: of the requests that every store has,
// only this one fails on a read-only replica, without the right to write, and without a quorum. The
// name of that lock is holdfast.ping/ and random digits, after Config.Prefix, so a program that may
// only use certain names needs the right to use that, too. Hooks get its requests alone, and Logger
// nothing.
//
// Ping makes two requests, and returns within two of Config.RequestTimeout, also if ctx is canceled
// before. It repeats nothing: after an error its lock may stay for 10 s.
//
// Errors: [ErrUnavailable] with the reason, joined with ctx.Err() if ctx ended before the store had
// answered; [ErrUnsupported], [ErrInvalid], [ErrCorrupt], [ErrClosed].
func (c *Client) Ping(ctx context.Context) error {
	name := "holdfast.ping/" + rand.Text()[:16]
	if err := c.begin(ctx, nil, name); err != nil {
		return fmt.Errorf("holdfast: ping: %w", err)
	}
	defer c.activeCalls.Done()
	req := driver.Request{Name: c.config.Prefix + name, Owner: rand.Text(), Holder: c.config.Holder, TTL: 10 * time.Second}
	res, err := request(c, ctx, "acquire", c.config.RequestTimeout, func(ctx context.Context) (driver.Result, error) {
		return c.store.Acquire(ctx, req)
	})
	works := res.Granted
	if err == nil && works {
		works, err = request(c, ctx, "release", c.config.RequestTimeout, func(ctx context.Context) (bool, error) {
			return c.store.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		})
	}
	switch cut := ctx.Err(); {
	case err != nil && cut != nil:
		err = fmt.Errorf("%w: %w", errNotAnswered, cut)
	case err != nil:
		err = storeError(ctx, err)
	case works:
		return nil
	default:
		err = fmt.Errorf("%w: a name that is new is held, or not held after its grant", ErrUnavailable)
	}
	return fmt.Errorf("holdfast: ping: %w", err)
}

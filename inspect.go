package holdfast

import (
	"context"
	"errors"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
)

// A Record describes who holds a lock, for people and tools: a picture of the
// past, never a ground to act on as if one held the lock.
type Record = driver.Record

// Lookup reports who holds a lock. If nobody does, the error matches
// [ErrNotHeld].
func (c *Client) Lookup(ctx context.Context, name string) (Record, error) {
	full, err := c.full(name)
	if err != nil {
		return Record{}, failed("look up", name, err)
	}
	rec, err := c.lookup(ctx, full)
	if err != nil {
		return Record{}, failed("look up", name, err)
	}
	rec.Name = name
	return rec, nil
}

func (c *Client) lookup(ctx context.Context, full string) (Record, error) {
	return c.inspect(ctx, func(ctx context.Context) (Record, bool, error) {
		return c.store.Lookup(ctx, full)
	})
}

// inspect makes a request that answers with a record, if there is one.
func (c *Client) inspect(ctx context.Context, request func(context.Context) (Record, bool, error)) (Record, error) {
	if err := c.begin(); err != nil {
		return Record{}, err
	}
	defer c.active.Done()
	rec, err := ask(c, ctx, c.timeout, nil, func(ctx context.Context) (Record, error) {
		rec, found, err := request(ctx)
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

// List yields the locks that are held, or kept after their release, and whose
// names begin with prefix, in no order. An error that concerns one record is
// yielded, and the listing goes on. It is bounded by ctx alone.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := c.begin(); err != nil {
			yield(Record{}, failed("list", prefix, err))
			return
		}
		defer c.active.Done()
		for rec, err := range c.store.List(ctx, c.prefix+prefix) {
			if err != nil {
				rec, err = Record{}, failed("list", prefix, storeError(ctx, err))
			} else {
				rec.Name = c.strip(rec.Name)
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// Break ends the hold of a lock, whoever has it, and reports what it ended. The
// holder is not asked: it finds out by its next renewal, so its work goes on
// for up to a third of its TTL, and only a fencing token keeps it from doing
// harm. If nobody holds the lock, the error matches [ErrNotHeld].
//
// If the error is ErrUnavailable, the lock may have been broken or not.
func (c *Client) Break(ctx context.Context, name string) (Record, error) {
	full, err := c.full(name)
	if err != nil {
		return Record{}, failed("break", name, err)
	}
	rec, err := c.inspect(ctx, func(ctx context.Context) (Record, bool, error) {
		return c.store.Break(ctx, full)
	})
	if err != nil {
		return Record{}, failed("break", name, err)
	}
	rec.Name = name
	c.broke(full, rec.Token)
	return rec, nil
}

// broke ends a hold of this very Client at once.
func (c *Client) broke(full string, token int64) {
	c.mu.Lock()
	var holds []*hold
	if s := c.slots[full]; s != nil && s.hold != nil {
		holds = append(holds, s.hold)
	}
	for h := range c.adopted {
		if h.full == full {
			holds = append(holds, h)
		}
	}
	c.mu.Unlock()
	for _, h := range holds {
		if h.token == token {
			h.lose(ErrBroken)
		}
	}
}

// WaitFree waits until nobody holds the lock, without taking it: by the time it
// returns, somebody may have taken it again. Do not use it to guard anything.
// It rides out a store that does not answer as Acquire does.
func (c *Client) WaitFree(ctx context.Context, name string) error {
	full, err := c.full(name)
	if err != nil {
		return failed("wait for", name, err)
	}
	v := vigil{c: c, ctx: ctx, full: full}
	defer v.end()
	patience := patience{c: c}
	for {
		sent := c.clock.now()
		rec, err := c.lookup(ctx, full)
		switch {
		case errors.Is(err, ErrNotHeld):
			return nil
		case err != nil:
			if err = patience.bear(ctx, sent, err); err == nil {
				err = v.pause()
			}
		default:
			patience.answered()
			if v.watch() {
				continue // the release may have come before the watch
			}
			err = v.wait(rec.Remaining)
		}
		if err != nil {
			return failed("wait for", name, err)
		}
	}
}

package holdfast

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// ask makes one request to the store and waits for its answer until ctx ends or
// limit has passed, whatever the store does meanwhile. The request itself does
// not end with ctx but with the limit, so that its outcome is learnt: if ask
// returned without an answer, late is called once the request has come back. Who
// gives a ctx that can end must have registered by begin.
func ask[T any](c *Client, ctx context.Context, limit time.Duration, late func(), request func(context.Context) (T, error)) (T, error) {
	if c.inline {
		return request(ctx)
	}
	if c.can.Blocking != driver.BlocksForLong && ctx.Done() == nil {
		return askHere(ctx, limit, request)
	}
	return askAside(c, ctx, limit, late, request)
}

// askHere makes the request in the caller's goroutine, which saves waking
// another one and being woken by it: longer than many a server takes to answer.
func askHere[T any](ctx context.Context, limit time.Duration, request func(context.Context) (T, error)) (T, error) {
	limited := driver.WithBound(ctx, limit)
	defer limited.End()
	value, err := request(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil && !driver.NotApplied(err) {
		err = noAnswer(limit)
	}
	return value, err
}

// askAside makes the request in a goroutine of its own.
func askAside[T any](c *Client, ctx context.Context, limit time.Duration, late func(), request func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	requestCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	go func() {
		defer cancel()
		value, err := request(requestCtx)
		answered <- answer{value, err}
	}()

	var none T
	var err error
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-requestCtx.Done():
		select {
		case a := <-answered: // the goroutine has ended the context after that
			return a.value, a.err
		default:
		}
		err = noAnswer(limit)
	}
	switch {
	case late != nil:
		c.active.Go(func() {
			<-answered
			late()
		})
	case ctx.Err() != nil:
		c.active.Go(func() {
			select { // Close waits for what is under way, but not for the deaf
			case <-answered:
			case <-requestCtx.Done():
			}
		})
	}
	return none, err
}

func noAnswer(limit time.Duration) error {
	return fmt.Errorf("%w: no answer within %v", ErrUnavailable, readable(limit))
}

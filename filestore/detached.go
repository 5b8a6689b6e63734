package filestore

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// A direct is a Store that makes each request on the caller's goroutine, which waits for the disk
// for as long as that hangs. The methods of Store make each request in a goroutine of its own, and
// return when their context ends. The result of a request that was left is unknown.
type direct struct{ *engine }

// lateTimeout bounds a Release whose context has ended while it waited for an earlier Acquire, and
// how long Close waits for the disk.
const lateTimeout = 3 * time.Second

// errCloseHangs is the error of a Close that does not return.
var errCloseHangs = errors.New("the disk hangs, and the store was not closed in time")

// calls are the requests of a Store under way, with those that were left.
type calls struct {
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	last   map[[2]string]chan struct{} // by name and owner: closed at the end of the last request that takes or ends its hold
}

// detach makes a call in a goroutine of its own, and returns its result or the error of ctx. The
// deadline of the call is a little earlier than that of ctx, so that it can report what it waited
// for.
func detach[T any](ctx context.Context, s *engine, call func(context.Context) (T, error)) (T, error) {
	return detachInOrder(ctx, s, nil, func(ctx context.Context, _ <-chan struct{}) (T, error) { return call(ctx) })
}

// detachInOrder is detach for a call that takes or ends the hold of an owner, which is given by name
// and owner. The call must begin when earlier is closed: then the calls of this owner before it have
// ended.
func detachInOrder[T any](
	ctx context.Context, s *engine, owner *[2]string, call func(ctx context.Context, earlier <-chan struct{}) (T, error),
) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, driver.NotApplied(err)
	}
	results := make(chan result, 1)
	run := func(earlier <-chan struct{}) {
		callCtx, cancel := ctx, context.CancelFunc(func() {})
		if deadline, ok := ctx.Deadline(); ok {
			left := time.Until(deadline)
			callCtx, cancel = context.WithTimeout(ctx, left-min(left/4, 100*time.Millisecond))
		}
		defer cancel()
		value, err := call(callCtx, earlier)
		results <- result{value, err}
	}
	if err := s.calls.start(owner, run); err != nil {
		return none, err
	}
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-results: // at the same moment
		return r.value, r.err
	default:
		return none, ctx.Err()
	}
}

// noneEarlier is closed.
var noneEarlier = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// start runs call in a goroutine that Close waits for.
func (c *calls) start(owner *[2]string, call func(earlier <-chan struct{})) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return driver.ErrClosed
	}
	if owner == nil {
		c.running.Go(func() { call(noneEarlier) })
		return nil
	}
	if c.last == nil {
		c.last = map[[2]string]chan struct{}{}
	}
	earlier, end := c.last[*owner], make(chan struct{})
	if earlier == nil {
		earlier = noneEarlier
	}
	c.last[*owner] = end
	c.running.Go(func() {
		call(earlier)
		c.mu.Lock()
		defer c.mu.Unlock()
		close(end)
		if c.last[*owner] == end {
			delete(c.last, *owner)
		}
	})
	return nil
}

// Acquire implements [olddriver.Store].
func (s *engine) Acquire(ctx context.Context, req olddriver.AcquireRequest) (olddriver.AcquireResult, error) {
	return detachInOrder(ctx, s, &[2]string{req.Name, req.Owner}, func(ctx context.Context, earlier <-chan struct{}) (olddriver.AcquireResult, error) {
		select {
		case <-earlier:
			return direct{s}.Acquire(ctx, req)
		case <-ctx.Done():
		}
		<-earlier // No later request of the owner overtakes the earlier one.
		return olddriver.AcquireResult{}, driver.NotApplied(ctx.Err())
	})
}

// Release implements [olddriver.Store]. It takes effect after all earlier calls of Acquire of the owner,
// also if its own context ends before them.
func (s *engine) Release(ctx context.Context, req olddriver.ReleaseRequest) (bool, error) {
	return detachInOrder(ctx, s, &[2]string{req.Name, req.Owner}, func(ctx context.Context, earlier <-chan struct{}) (bool, error) {
		<-earlier
		if ctx.Err() != nil {
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTimeout)
			defer cancel()
			ctx = late
		}
		return direct{s}.Release(ctx, req)
	})
}

// Renew implements [olddriver.Store].
func (s *engine) Renew(ctx context.Context, reqs []olddriver.RenewRequest) ([]olddriver.RenewOutcome, error) {
	return detach(ctx, s, func(ctx context.Context) ([]olddriver.RenewOutcome, error) { return direct{s}.Renew(ctx, reqs) })
}

// A found is the result of a request for one record.
type found struct {
	rec olddriver.Record
	ok  bool
	err error
}

// Lookup implements [olddriver.Store].
func (s *engine) Lookup(ctx context.Context, name string) (olddriver.Record, bool, error) {
	r, err := detach(ctx, s, func(ctx context.Context) (r found, err error) {
		r.rec, r.ok, err = direct{s}.Lookup(ctx, name)
		return r, err
	})
	return r.rec, r.ok, err
}

// Break implements [olddriver.Store].
func (s *engine) Break(ctx context.Context, req olddriver.BreakRequest) (olddriver.Record, bool, error) {
	r, err := detach(ctx, s, func(ctx context.Context) (r found, err error) {
		r.rec, r.ok, err = direct{s}.Break(ctx, req)
		return r, err
	})
	return r.rec, r.ok, err
}

// List implements [olddriver.Store]. It reads all records before it yields the first.
func (s *engine) List(ctx context.Context, prefix string) iter.Seq2[olddriver.Record, error] {
	return func(yield func(olddriver.Record, error) bool) {
		all, err := detach(ctx, s, func(ctx context.Context) (all []found, _ error) {
			for rec, err := range (direct{s}).List(ctx, prefix) {
				all = append(all, found{rec: rec, err: err})
			}
			return all, nil
		})
		for _, r := range all {
			if !yield(r.rec, r.err) {
				return
			}
		}
		if err != nil {
			yield(olddriver.Record{}, err)
		}
	}
}

// Close ends the session of this Store and its watches. Holds that were not released stay until
// their TTL, since this process may still rely on them. If the disk hangs, Close returns an error
// after 3 s.
func (s *engine) Close() error {
	s.calls.mu.Lock()
	wasClosed := s.calls.closed
	s.calls.closed = true
	s.calls.mu.Unlock()
	if wasClosed {
		return nil
	}
	closed := make(chan error, 1)
	go func() {
		err := direct{s}.Close()
		s.calls.running.Wait()
		closed <- err
	}()
	timeout := time.NewTimer(lateTimeout)
	defer timeout.Stop()
	select {
	case err := <-closed:
		return err
	case <-timeout.C:
		return errCloseHangs
	}
}

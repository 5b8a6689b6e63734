package driver

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// lateTimeout bounds the release of a late grant or place, and how long Close waits for calls that
// are under way.
const lateTimeout = 3 * time.Second

// errCloseHangs is the error of a Close that does not return.
var errCloseHangs = errors.New("the store hangs, and was not closed in time")

// Detach returns a store whose methods return when their context ends, whatever the methods of
// store do meanwhile. It is for a store that cannot promise that by itself, because its disk or its
// client library may hang.
//
// Each call of store runs in a goroutine of its own. When the context of a call ends, the caller
// gets the error of the context, and the goroutine is left to end by itself. The result of a call
// that was left is unknown. A Release takes effect after all earlier calls of Acquire of the same
// owner: if one of them that was left is answered after the Release, the owner is released again,
// unless it has called Acquire again.
//
// Close waits for the calls under way for 3 s at most. A call without a deadline is not bounded.
// The store that Detach returns is a [Notifier], and notifies if store does.
func Detach(store Store) Store {
	return &detachedStore{Store: store, acquiring: map[[2]string]*acquiringOwner{}}
}

// A detachedStore makes each call of its Store in a goroutine of its own.
type detachedStore struct {
	Store
	calls sync.WaitGroup // calls under way, including those that were left

	mu        sync.Mutex // guards all below
	closed    bool
	acquiring map[[2]string]*acquiringOwner // by name and owner
}

// An acquiringOwner is an owner with calls of Acquire under way.
type acquiringOwner struct {
	calls    int
	begun    int // how many calls of Acquire have begun
	released int // begun at the last Release
}

var _ Notifier = (*detachedStore)(nil)

// start runs call in a goroutine that Close waits for. It runs begin first, which may be nil, under
// d.mu.
func (d *detachedStore) start(begin, call func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	if begin != nil {
		begin()
	}
	d.calls.Go(call)
	return nil
}

// callDetached makes a call in a goroutine of its own, and returns its result or the error of ctx.
// The deadline of the call is a little earlier than that of ctx, so that a store that returns by
// its deadline can report what it waited for.
func callDetached[T any](
	d *detachedStore, ctx context.Context, begin func(), call func(context.Context) (T, error),
) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, NotApplied(err)
	}
	callCtx, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		callCtx, cancel = context.WithTimeout(ctx, left-min(left/4, 100*time.Millisecond))
	}
	results := make(chan result, 1)
	if err := d.start(begin, func() {
		defer cancel()
		value, err := call(callCtx)
		results <- result{value, err}
	}); err != nil {
		cancel()
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

// Acquire implements [Store].
func (d *detachedStore) Acquire(ctx context.Context, req AcquireRequest) (AcquireResult, error) {
	if _, ok := d.Store.(Notifier); req.Claim && !ok {
		return AcquireResult{}, ErrUnsupported // It may not know what a claim is, and take the name.
	}
	key := [2]string{req.Name, req.Owner}
	var owner *acquiringOwner
	begin := func() {
		if owner = d.acquiring[key]; owner == nil {
			owner = &acquiringOwner{}
			d.acquiring[key] = owner
		}
		owner.calls++
		owner.begun++
	}
	return callDetached(d, ctx, begin, func(ctx context.Context) (AcquireResult, error) {
		res, err := d.Store.Acquire(ctx, req)
		d.mu.Lock()
		owner.calls--
		if owner.calls == 0 {
			delete(d.acquiring, key)
		}
		released := owner.begun == owner.released // and there was no Acquire since
		d.mu.Unlock()
		if released && (res.Granted || res.Queued || err != nil && !IsNotApplied(err)) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTimeout)
			defer cancel()
			_, _ = d.Store.Release(ctx, ReleaseRequest{Name: req.Name, Owner: req.Owner}) // else its time ends it
		}
		return res, err
	})
}

// Renew implements [Store].
func (d *detachedStore) Renew(ctx context.Context, reqs []RenewRequest) ([]RenewOutcome, error) {
	return callDetached(d, ctx, nil, func(ctx context.Context) ([]RenewOutcome, error) { return d.Store.Renew(ctx, reqs) })
}

// Release implements [Store].
func (d *detachedStore) Release(ctx context.Context, req ReleaseRequest) (bool, error) {
	d.mu.Lock()
	if owner := d.acquiring[[2]string{req.Name, req.Owner}]; owner != nil {
		owner.released = owner.begun
	}
	d.mu.Unlock()
	return callDetached(d, ctx, nil, func(ctx context.Context) (bool, error) { return d.Store.Release(ctx, req) })
}

// Lookup implements [Store].
func (d *detachedStore) Lookup(ctx context.Context, name string) (Record, bool, error) {
	return d.callForRecord(ctx, func(ctx context.Context) (Record, bool, error) { return d.Store.Lookup(ctx, name) })
}

// Break implements [Store].
func (d *detachedStore) Break(ctx context.Context, req BreakRequest) (Record, bool, error) {
	return d.callForRecord(ctx, func(ctx context.Context) (Record, bool, error) { return d.Store.Break(ctx, req) })
}

// callForRecord is callDetached for Lookup and Break.
func (d *detachedStore) callForRecord(
	ctx context.Context, call func(context.Context) (Record, bool, error),
) (rec Record, found bool, err error) {
	result, err := callDetached(d, ctx, nil, func(ctx context.Context) (*Record, error) {
		rec, found, err := call(ctx)
		if !found {
			return nil, err
		}
		return &rec, err
	})
	if result != nil {
		return *result, true, err
	}
	return Record{}, false, err
}

// List implements [Store].
func (d *detachedStore) List(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		type item struct {
			rec Record
			err error
		}
		listCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		items := make(chan item, 64)
		cut := false // items are missing; set before the channel is closed
		if err := d.start(nil, func() {
			defer close(items)
			for rec, err := range d.Store.List(listCtx, prefix) {
				select {
				case items <- item{rec, err}:
				case <-listCtx.Done():
					cut = true
					return
				}
			}
		}); err != nil {
			yield(Record{}, err)
			return
		}
		for {
			select {
			case i, more := <-items:
				if !more && cut {
					yield(Record{}, ctx.Err())
				}
				if !more || !yield(i.rec, i.err) {
					return
				}
			case <-ctx.Done():
				yield(Record{}, ctx.Err())
				return
			}
		}
	}
}

// Notify implements [Notifier].
func (d *detachedStore) Notify(f func(Notice)) (stop func()) {
	if notifier, ok := d.Store.(Notifier); ok {
		return notifier.Notify(f)
	}
	return func() {}
}

// Close implements [Store].
func (d *detachedStore) Close() error {
	d.mu.Lock()
	wasClosed := d.closed
	d.closed = true
	d.mu.Unlock()
	if wasClosed {
		return nil
	}
	closed, idle := make(chan error, 1), make(chan struct{})
	go func() {
		closed <- d.Store.Close()
		d.calls.Wait()
		close(idle)
	}()
	timeout := time.NewTimer(lateTimeout)
	defer timeout.Stop()
	select {
	case <-idle:
	case <-timeout.C:
	}
	select {
	case err := <-closed:
		return err
	default:
		return errCloseHangs
	}
}

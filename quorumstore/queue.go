package quorumstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// An ownerState is what is in flight, waits or is in doubt for one owner of one name. It exists
// only as long as there is any of that.
type ownerState struct {
	key       ownerKey
	acquiring chan struct{} // holds a value while an Acquire is under way

	// Guarded by Store.mu.
	refs   int
	queues []nodeQueue // one for each node
}

type ownerKey struct{ name, owner string }

// A nodeQueue sends the requests of one owner to one node, one after the other, so that a release
// never overtakes the acquisition that it undoes. However long the node hangs, the queue has one
// request in flight, and of those that wait one acquisition, and one release of each kind for each
// of them. It is guarded by Store.mu.
type nodeQueue struct {
	current    *nodeRequest // in flight; nil if there is none
	waiting    []*nodeRequest
	acquires   int       // how many acquisitions were sent
	doubtUntil time.Time // see doubtTime
}

// A nodeRequest is an acquisition or a release at one node.
type nodeRequest struct {
	acquire  *driver.AcquireRequest // nil for a release
	acquired *fanOut[driver.AcquireResult]
	mayHold  bool // the acquisition has ended, and may have left a hold

	release  driver.ReleaseRequest
	released []*fanOut[bool] // those that the release is sent for; none if it is sent again
	undoes   *nodeRequest    // the acquisition that the release undoes; nil if it is sent in any case
	resent   int             // how often the release was sent before
	acquires int             // nodeQueue.acquires when it was sent before

	skipped bool      // its turn has come, and it is not to be sent
	doubt   time.Time // nodeQueue.doubtUntil when its turn came; zero if there was no doubt
}

// Reasons not to send a request to a node. Nothing was sent.
var (
	errNotSent = driver.NotApplied(errors.New("an earlier request is still unanswered"))
	errInDoubt = driver.NotApplied(errors.New("an earlier release is not confirmed"))
)

// isUnsent reports whether err is a reason of this package not to send a request: it does not show
// whether the node would reply.
func isUnsent(err error) bool {
	return errors.Is(err, errNotSent) || errors.Is(err, errInDoubt) || errors.Is(err, errUnresponsive)
}

// refOwner returns the state of an owner, with a reference to it.
func (s *Store) refOwner(name, owner string) *ownerState {
	key := ownerKey{name, owner}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[key]
	if o == nil {
		o = &ownerState{key: key, acquiring: make(chan struct{}, 1), queues: make([]nodeQueue, len(s.nodes))}
		s.owners[key] = o
	}
	o.refs++
	return o
}

// unrefOwner drops a reference.
func (s *Store) unrefOwner(o *ownerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unrefLocked(o)
}

func (s *Store) unrefLocked(o *ownerState) {
	o.refs--
	if o.refs == 0 {
		delete(s.owners, o.key)
	}
}

// enqueue puts a request into the queue of a node, and sends it if there is nothing else. A release
// joins one of its kind that waits at the end of the queue. The caller holds s.mu.
func (s *Store) enqueue(o *ownerState, n *node, r *nodeRequest) {
	q := &o.queues[n.index]
	for _, w := range q.waiting {
		if w.acquire != nil && w.acquired.isDecided() { // The grant is not needed any more.
			s.cancel(o, n, w)
			break // There is no other: see nodeQueue.
		}
	}
	if i := len(q.waiting) - 1; i >= 0 && r.acquire == nil {
		if last := q.waiting[i]; last.acquire == nil && (last.release.Keep > 0) == (r.release.Keep > 0) {
			last.released = append(slices.DeleteFunc(last.released, (*fanOut[bool]).isDecided), r.released...)
			last.undoes, last.resent = nil, 0
			return
		}
	}
	o.refs++
	s.beginRequest(n)
	q.waiting = append(q.waiting, r)
	if q.current == nil {
		q.startNext()
		go s.sendQueue(o, n)
	}
}

// cancel takes a request out of a queue, and reports false if it has been sent. The caller holds
// s.mu.
func (s *Store) cancel(o *ownerState, n *node, r *nodeRequest) bool {
	q := &o.queues[n.index]
	i := slices.Index(q.waiting, r)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	s.unrefLocked(o)
	s.endRequest(n)
	return true
}

// startNext makes the first request that waits the current one, and decides whether it is to be
// sent. The caller holds Store.mu.
func (q *nodeQueue) startNext() {
	if q.current = nil; len(q.waiting) == 0 {
		return
	}
	r := q.waiting[0]
	q.current, q.waiting = r, q.waiting[1:]
	if !q.doubtUntil.IsZero() && time.Now().Before(q.doubtUntil) {
		r.doubt = q.doubtUntil
	}
	switch {
	case r.acquire == nil:
		r.skipped = r.undoes != nil && !r.undoes.mayHold || r.resent > 0 && r.acquires != q.acquires
		r.acquires = q.acquires
	case r.acquired.ctx.Err() != nil:
		r.skipped = true
	case r.doubt.IsZero():
		q.acquires++
	}
}

// sendQueue sends the current request of a queue, and those that wait.
func (s *Store) sendQueue(o *ownerState, n *node) {
	q := &o.queues[n.index]
	for r := q.current; r != nil; {
		if r.acquire != nil {
			s.sendAcquire(o, n, r)
		} else {
			s.sendRelease(o, n, r)
		}
		s.mu.Lock()
		q.startNext()
		r = q.current
		s.unrefLocked(o)
		s.mu.Unlock()
		s.endRequest(n)
	}
}

// sendAcquire sends an acquisition; or a release in its place, if an earlier one may still be on
// its way.
func (s *Store) sendAcquire(o *ownerState, n *node, r *nodeRequest) {
	var res driver.AcquireResult
	err := errNotSent
	ctx := r.acquired.ctx
	switch {
	case r.skipped:
	case !r.doubt.IsZero():
		_, err = callNode(ctx, n, func(ctx context.Context) (bool, error) {
			return n.Release(ctx, driver.ReleaseRequest{Name: r.acquire.Name, Owner: r.acquire.Owner})
		})
		s.updateDoubt(o, n, r.doubt, err)
		err = errInDoubt
	default:
		res, err = callNode(ctx, n, func(ctx context.Context) (driver.AcquireResult, error) {
			return n.Acquire(ctx, *r.acquire)
		})
		r.mayHold = err == nil && res.Granted || err != nil && !driver.IsNotApplied(err)
	}
	r.acquired.receive(reply[driver.AcquireResult]{n.index, res, err})
}

// sendRelease sends a release, even if the time of its callers was over when its turn came.
func (s *Store) sendRelease(o *ownerState, n *node, r *nodeRequest) {
	var ended bool
	var err error
	switch {
	case r.skipped: // nothing is left to release
	case s.alive.Err() != nil:
		err = driver.ErrClosed
	default:
		ctx := s.alive
		if len(r.released) > 0 {
			ctx = r.released[0].ctx
		}
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) < s.timeout {
			var cancel context.CancelFunc
			ctx, cancel = s.requestContext(ctx, 2*s.timeout)
			defer cancel()
		}
		ended, err = callNode(ctx, n, func(ctx context.Context) (bool, error) { return n.Release(ctx, r.release) })
		s.updateDoubt(o, n, r.doubt, err)
		if err != nil && !driver.Permanent(err) {
			s.resendLater(o, n, r)
		}
	}
	for _, f := range r.released {
		f.receive(reply[bool]{n.index, ended, err})
	}
}

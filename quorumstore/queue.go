package quorumstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/quorumbatch"
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

// A nodeQueue sends the requests of one owner to one node, one after the other: a release is sent
// after the call of the acquisition that it undoes has returned. If that call was given up at its
// deadline, the server may still execute it after the release, which is therefore sent again if it
// has found nothing. At most one request is in flight. At most one acquisition waits. A waiting
// release absorbs the next one of its kind, so the queue of a node that hangs stays short. It is
// guarded by Store.mu.
type nodeQueue struct {
	current    *nodeRequest // in flight; nil if there is none
	waiting    []*nodeRequest
	sent       int       // how many requests were sent, but those sent again
	unknown    bool      // an acquisition has ended without a reply, and may still arrive
	doubtUntil time.Time // see doubtTime
}

// A nodeRequest is an acquisition or a release at one node.
type nodeRequest struct {
	owner *ownerState

	acquire  *driver.AcquireRequest // nil for a release
	acquired *fanOut[*driver.AcquireResult]
	mayHold  bool // the acquisition has ended, and may have left a hold

	release  driver.ReleaseRequest
	released []*fanOut[bool] // those that the release is sent for; none if it is sent again
	undoes   *nodeRequest    // the acquisition that the release undoes; nil if it is sent in any case
	resent   int             // how often the release was sent before
	place    int             // nodeQueue.sent when it was sent before

	skipped bool      // its turn has come, and it is not to be sent
	doubt   time.Time // nodeQueue.doubtUntil when its turn came; zero if there was no doubt

	sent quorumbatch.Request // what the node gets, with the result
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
func (s *Store) enqueue(n *node, r *nodeRequest) {
	q := &r.owner.queues[n.index]
	for _, w := range q.waiting {
		if w.acquire != nil && w.acquired.isDecided() { // The grant is not needed any more.
			s.cancel(n, w)
			break // There is no other: see nodeQueue.
		}
	}
	if i := len(q.waiting) - 1; i >= 0 && r.acquire == nil {
		if last := q.waiting[i]; last.acquire == nil && (last.release.Keep > 0) == (r.release.Keep > 0) {
			last.released = append(slices.DeleteFunc(last.released, (*fanOut[bool]).isDecided), r.released...)
			last.undoes = nil
			if r.resent == 0 { // The later release decides how long the name is kept.
				last.release, last.resent = r.release, 0
			}
			return
		}
	}
	r.owner.refs++
	s.beginRequest(n)
	q.waiting = append(q.waiting, r)
	if q.current == nil {
		s.startNext(n, q)
	}
}

// cancel takes a request out of a queue, and reports false if its turn has come. The caller holds
// s.mu.
func (s *Store) cancel(n *node, r *nodeRequest) bool {
	q := &r.owner.queues[n.index]
	i := slices.Index(q.waiting, r)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	s.unrefLocked(r.owner)
	s.endRequest(n)
	return true
}

// startNext makes the first request that waits the current one, decides whether it is to be sent,
// and has that done: at once, or with the next batch of the node. The caller holds s.mu.
func (s *Store) startNext(n *node, q *nodeQueue) {
	if q.current = nil; len(q.waiting) == 0 {
		return
	}
	r := q.waiting[0]
	q.current, q.waiting = r, q.waiting[1:]
	if !q.doubtUntil.IsZero() && time.Now().Before(q.doubtUntil) {
		r.doubt = q.doubtUntil
	}
	switch {
	case r.resent > 0:
		r.skipped = r.place != q.sent
	case r.acquire == nil:
		r.skipped = r.undoes != nil && !r.undoes.mayHold
	default:
		r.skipped = r.acquired.isOver()
	}
	if !r.skipped && r.resent == 0 && (r.acquire == nil || r.doubt.IsZero()) {
		q.sent++
	}
	r.place = q.sent
	if n.sendBatch == nil {
		go s.send(n, []*nodeRequest{r})
		return
	}
	n.waiting = append(n.waiting, r)
	s.startSender(n)
}

// send sends current requests of queues to a node, counts the replies, and starts the requests
// behind them.
func (s *Store) send(n *node, requests []*nodeRequest) {
	ctx, cancel := s.sendContext(requests)
	for _, r := range requests {
		s.prepare(r)
	}
	n.send(ctx, requests)
	cancel()
	for _, r := range requests {
		s.deliver(n, r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range requests {
		s.startNext(n, &r.owner.queues[n.index])
		s.unrefLocked(r.owner)
		s.endRequest(n)
	}
}

// sendContext returns the context to send requests with. A release has the time of a request even
// if that of its callers was over when its turn came.
func (s *Store) sendContext(requests []*nodeRequest) (context.Context, context.CancelFunc) {
	values := context.Background()
	switch r := requests[0]; {
	case len(requests) > 1:
	case r.acquire != nil:
		return r.acquired.context(), func() {}
	case len(r.released) > 0:
		f := r.released[0]
		if time.Until(f.deadline) >= s.timeout {
			return f.context(), func() {}
		}
		values = f.values
	}
	return s.requestContext(values, time.Now().Add(2*s.timeout))
}

// prepare sets r.sent, unless the request is to be skipped. While a release is in doubt, it sends
// that release again in place of an acquisition.
func (s *Store) prepare(r *nodeRequest) {
	switch {
	case r.acquire == nil && !r.skipped && s.alive.Err() != nil:
		r.skipped, r.sent.Err = true, driver.ErrClosed
	case r.acquire == nil:
		r.sent.Release = r.release
	case r.skipped || r.acquired.isOver():
		r.skipped, r.sent.Err = true, errNotSent
	case !r.doubt.IsZero():
		r.sent.Release = driver.ReleaseRequest{Name: r.acquire.Name, Owner: r.acquire.Owner}
	default:
		r.sent.Acquire = r.acquire
	}
}

// deliver counts the reply to a request, and remembers what the node may have missed.
func (s *Store) deliver(n *node, r *nodeRequest) {
	err := r.sent.Err
	if r.acquire == nil {
		if !r.skipped {
			s.updateDoubt(r.owner, n, r.doubt, err)
			late := err == nil && !r.sent.Released && s.mayStillArrive(r.owner, n)
			if late || err != nil && !driver.Permanent(err) {
				s.resendLater(n, r)
			}
		}
		for _, f := range r.released {
			f.receive(reply[bool]{n.index, r.sent.Released, err})
		}
		return
	}
	switch {
	case r.skipped:
	case r.sent.Acquire == nil:
		s.updateDoubt(r.owner, n, r.doubt, err)
		err = errInDoubt
	default:
		unknown := err != nil && !driver.IsNotApplied(err)
		r.mayHold = unknown || err == nil && r.sent.Acquired.Granted
		if unknown {
			s.mu.Lock()
			r.owner.queues[n.index].unknown = true
			s.mu.Unlock()
		}
	}
	r.acquired.receive(reply[*driver.AcquireResult]{n.index, &r.sent.Acquired, err})
}

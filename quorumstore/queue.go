package quorumstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// An ownerState is what is in flight, waits or is in doubt for one owner of one name. It exists
// only as long as there is any of that.
type ownerState struct {
	key       [2]string     // of Store.owners
	acquiring chan struct{} // holds a value while an Acquire is under way

	// Guarded by Store.mu.
	refs   int
	queues []nodeQueue // one for each node
}

// A nodeQueue sends the requests of one owner to one node, one after the other: a release is sent
// after the call of the acquisition that it undoes has returned. If that call was given up at its
// deadline, the server may still execute it after the release, which is therefore sent again if it
// has found nothing. At most one request is in flight. At most one acquisition waits. A waiting
// release absorbs the next one of its kind, so the queue of a node that hangs stays short. It is
// guarded by Store.mu.
type nodeQueue struct {
	current    *nodeRequest // in flight; nil if there is none
	waiting    []*nodeRequest
	sent       int       // how many requests were sent, without repetitions
	unknown    bool      // an acquisition has ended without a reply, and may still arrive
	doubtUntil time.Time // see doubtTime
}

// A nodeRequest is an acquisition or a release at one node.
type nodeRequest struct {
	acquire *olddriver.AcquireRequest // nil for a release
	release olddriver.ReleaseRequest
	owner   *ownerState
	callers []*fanOut[reply] // those that get the reply; none if it is sent again

	undoes  *nodeRequest // the acquisition that a release undoes; nil if it is sent in any case
	resent  int          // how often a release was sent before
	sentAs  int          // nodeQueue.sent when it was first sent
	mayHold bool         // an acquisition has ended, and may have left a hold
}

// A reply is that of a node to a nodeRequest.
type reply struct {
	olddriver.AcquireResult
	released bool
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

// refOwner returns the state of an owner, with a reference to it. The caller holds s.mu.
func (s *engine) refOwner(name, owner string) *ownerState {
	key := [2]string{name, owner}
	o := s.owners[key]
	if o == nil {
		o = &ownerState{key: key, acquiring: make(chan struct{}, 1), queues: make([]nodeQueue, len(s.nodes))}
		s.owners[key] = o
	}
	o.refs++
	return o
}

// unrefOwner drops a reference. The caller holds s.mu.
func (s *engine) unrefOwner(o *ownerState) {
	o.refs--
	if o.refs == 0 {
		delete(s.owners, o.key)
	}
}

// enqueueAll puts a request of an owner into the queues of all nodes. The replies go to f.
func (s *engine) enqueueAll(name, owner string, req nodeRequest, f *fanOut[reply]) []nodeRequest {
	requests := make([]nodeRequest, len(s.nodes))
	s.mu.Lock()
	defer s.mu.Unlock()
	req.owner, req.callers = s.refOwner(name, owner), []*fanOut[reply]{f}
	for i, n := range s.nodes {
		requests[i] = req
		s.enqueue(n, &requests[i])
	}
	s.unrefOwner(req.owner)
	return requests
}

// enqueue puts a request into the queue of a node, and sends it if there is nothing else. A release
// joins one of its kind that waits at the end of the queue. The caller holds s.mu.
func (s *engine) enqueue(n *node, r *nodeRequest) {
	q := &r.owner.queues[n.index]
	for _, w := range q.waiting {
		if w.acquire != nil && w.callers[0].isDecided() { // The grant is not needed any more.
			s.cancel(n, w)
			break // There is no other: see nodeQueue.
		}
	}
	if i := len(q.waiting) - 1; i >= 0 && r.acquire == nil {
		if last := q.waiting[i]; last.acquire == nil && (last.release.Keep > 0) == (r.release.Keep > 0) {
			undecided := slices.DeleteFunc(slices.Clone(last.callers), (*fanOut[reply]).isDecided)
			last.callers = append(undecided, r.callers...)
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
func (s *engine) cancel(n *node, r *nodeRequest) bool {
	q := &r.owner.queues[n.index]
	i := slices.Index(q.waiting, r)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	s.unrefOwner(r.owner)
	s.endRequest(n)
	return true
}

// startNext makes the first request that waits the current one, and sends it. The caller holds s.mu.
func (s *engine) startNext(n *node, q *nodeQueue) {
	if q.current = nil; len(q.waiting) == 0 {
		return
	}
	r := q.waiting[0]
	q.current, q.waiting = r, q.waiting[1:]
	go s.send(n, r)
}

// send sends the current request of a queue to a node, delivers the reply, and starts the request
// behind it.
func (s *engine) send(n *node, r *nodeRequest) {
	s.mu.Lock()
	sent, err := s.prepare(n, r)
	s.mu.Unlock()
	var got reply
	var sentErr error
	if sent != nil {
		ctx, cancel := s.sendContext(r)
		sentErr = n.call(ctx, func() (err error) {
			if sent.acquire != nil {
				got.AcquireResult, err = n.Acquire(ctx, *sent.acquire)
			} else {
				got.released, err = n.Release(ctx, sent.release)
			}
			return err
		})
		cancel()
	}
	if sent == r {
		err = sentErr
	}
	for _, f := range r.callers {
		f.receive(n.index, got, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent != nil {
		s.recordSent(n, r, sent, got, sentErr)
	}
	s.startNext(n, &r.owner.queues[n.index])
	s.unrefOwner(r.owner)
	s.endRequest(n)
}

// prepare decides what the node gets when the turn of a request has come: the request, nothing, or,
// while a release is in doubt, that release again in place of an acquisition. If it is not the
// request, the error is the reason. The caller holds s.mu.
func (s *engine) prepare(n *node, r *nodeRequest) (sent *nodeRequest, err error) {
	q, now := &r.owner.queues[n.index], time.Now()
	superseded := r.resent > 0 && r.sentAs != q.sent
	needless := r.undoes != nil && !r.undoes.mayHold
	switch {
	case s.alive.Err() != nil:
		return nil, driver.ErrClosed
	case superseded || needless || r.acquire != nil && !now.Before(r.callers[0].deadline):
		return nil, errNotSent
	case r.acquire != nil && now.Before(q.doubtUntil):
		return &nodeRequest{release: olddriver.ReleaseRequest{Name: r.acquire.Name, Owner: r.acquire.Owner}}, errInDoubt
	}
	if r.resent == 0 {
		q.sent++
	}
	r.sentAs = q.sent
	return r, nil
}

// sendContext returns the context to send a request with. A release has the time of a request even
// if that of its callers was over when its turn came.
func (s *engine) sendContext(r *nodeRequest) (context.Context, context.CancelFunc) {
	values := context.Background()
	if len(r.callers) > 0 {
		f := r.callers[0]
		if r.acquire != nil || time.Until(f.deadline) >= s.timeout {
			return f.ctx, func() {}
		}
		values = f.caller
	}
	return s.requestContext(values, time.Now().Add(2*s.timeout))
}

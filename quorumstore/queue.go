package quorumstore

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/quorumbatch"
)

// An ownerState is what is in flight, waits or is in doubt for one owner of one name. It exists
// only as long as there is any of that.
type ownerState struct {
	key       [2]string     // of Store.owners
	acquiring chan struct{} // holds a value while an Acquire is under way

	// Guarded by Store.mu.
	refs   int
	queues []nodeQueue // one for each node
	waiter *waiter     // nil if the owner does not wait
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

// A nodeRequest is an acquisition or a release at one node, and its reply.
type nodeRequest struct {
	quorumbatch.Request
	owner   *ownerState
	callers []*fanOut[*quorumbatch.Request] // those that get the reply; none if it is sent again

	undoes *nodeRequest // the acquisition that a release undoes; nil if it is sent in any case
	resent int          // how often a release was sent before
	sentAs int          // nodeQueue.sent when it was first sent

	sent    *quorumbatch.Request // what the node gets when its turn has come: see prepare
	mayHold bool                 // an acquisition has ended, and may have left a hold
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
func (s *Store) refOwner(name, owner string) *ownerState {
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
func (s *Store) unrefOwner(o *ownerState) {
	o.refs--
	if o.refs == 0 {
		delete(s.owners, o.key)
	}
}

// enqueueAll puts a request of an owner into the queues of all nodes. The replies go to f.
func (s *Store) enqueueAll(name, owner string, req quorumbatch.Request, f *fanOut[*quorumbatch.Request]) []nodeRequest {
	requests, callers := make([]nodeRequest, len(s.nodes)), []*fanOut[*quorumbatch.Request]{f}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.refOwner(name, owner)
	if req.Acquire == nil {
		s.endWaiter(o) // It has given up.
	}
	for i, n := range s.nodes {
		requests[i] = nodeRequest{Request: req, owner: o, callers: callers}
		s.enqueue(n, &requests[i])
	}
	s.unrefOwner(o)
	return requests
}

// enqueue puts a request into the queue of a node, and sends it if there is nothing else. A release
// joins one of its kind that waits at the end of the queue. The caller holds s.mu.
func (s *Store) enqueue(n *node, r *nodeRequest) {
	q := &r.owner.queues[n.index]
	for _, w := range q.waiting {
		if w.Acquire != nil && w.callers[0].isDecided() { // The grant is not needed any more.
			s.cancel(n, w)
			break // There is no other: see nodeQueue.
		}
	}
	if i := len(q.waiting) - 1; i >= 0 && r.Acquire == nil {
		if last := q.waiting[i]; last.Acquire == nil && (last.Release.Keep > 0) == (r.Release.Keep > 0) {
			undecided := slices.DeleteFunc(slices.Clone(last.callers), (*fanOut[*quorumbatch.Request]).isDecided)
			last.callers = append(undecided, r.callers...)
			last.undoes = nil
			if r.resent == 0 { // The later release decides how long the name is kept.
				last.Release, last.resent = r.Release, 0
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
	s.unrefOwner(r.owner)
	s.endRequest(n)
	return true
}

// startNext makes the first request that waits the current one, and has it sent: at once, or with
// the next batch of the node. The caller holds s.mu.
func (s *Store) startNext(n *node, q *nodeQueue) {
	if q.current = nil; len(q.waiting) == 0 {
		return
	}
	r := q.waiting[0]
	q.current, q.waiting = r, q.waiting[1:]
	if n.batches {
		n.waiting = append(n.waiting, r)
		s.startSender(n)
		return
	}
	go func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.send(n, []*nodeRequest{r})
	}()
}

// send sends current requests of queues to a node, delivers the replies, and starts the requests
// behind them. The caller holds s.mu, which is unlocked while the node has the requests.
func (s *Store) send(n *node, requests []*nodeRequest) {
	batch := make([]*quorumbatch.Request, 0, len(requests))
	for _, r := range requests {
		if s.prepare(n, r); r.sent != nil {
			batch = append(batch, r.sent)
		}
	}
	s.mu.Unlock()
	if len(batch) > 0 {
		ctx, cancel := s.sendContext(requests)
		err := n.call(ctx, func() error {
			n.sendBatch(ctx, batch)
			if slices.ContainsFunc(batch, func(r *quorumbatch.Request) bool { return r.Err == nil }) {
				return nil
			}
			return batch[0].Err
		})
		cancel()
		if err == errUnresponsive {
			for _, r := range batch {
				r.Err = err
			}
		}
	}
	for _, r := range requests {
		for _, f := range r.callers {
			f.receive(n.index, &r.Request, r.Err)
		}
	}
	runtime.Gosched() // The callers make their next requests at once: the next batch is larger.
	s.mu.Lock()
	for _, r := range requests {
		s.recordSent(n, r)
		s.startNext(n, &r.owner.queues[n.index])
		s.unrefOwner(r.owner)
		s.endRequest(n)
	}
}

// prepare decides what the node gets when the turn of a request has come: the request, nothing, or,
// while a release is in doubt, that release again in place of an acquisition. If it is not the
// request, r.Err is the reason. The caller holds s.mu.
func (s *Store) prepare(n *node, r *nodeRequest) {
	q, now := &r.owner.queues[n.index], time.Now()
	superseded := r.resent > 0 && r.sentAs != q.sent
	needless := r.undoes != nil && !r.undoes.mayHold
	switch {
	case s.alive.Err() != nil:
		r.Err = driver.ErrClosed
	case superseded || needless || r.Acquire != nil && !now.Before(r.callers[0].deadline):
		r.Err = errNotSent
	case r.Acquire != nil && r.Acquire.Claim && n.stopNotices == nil:
		r.Err = errNoMethod
	case r.Acquire != nil && now.Before(q.doubtUntil):
		r.Err = errInDoubt
		r.sent = &quorumbatch.Request{Release: driver.ReleaseRequest{Name: r.Acquire.Name, Owner: r.Acquire.Owner}}
	default:
		r.sent = &r.Request
		if r.resent == 0 {
			q.sent++
		}
		r.sentAs = q.sent
	}
}

// sendContext returns the context to send requests with. A release has the time of a request even
// if that of its callers was over when its turn came.
func (s *Store) sendContext(requests []*nodeRequest) (context.Context, context.CancelFunc) {
	values := context.Background()
	if r := requests[0]; len(requests) == 1 && len(r.callers) > 0 {
		f := r.callers[0]
		if r.Acquire != nil || time.Until(f.deadline) >= s.timeout {
			return f.context(), func() {}
		}
		values = f.caller
	}
	return s.requestContext(values, time.Now().Add(2*s.timeout))
}

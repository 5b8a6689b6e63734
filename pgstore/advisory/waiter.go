package advisory

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// A waiter is an owner that gets Ask notices for a name, as AcquireRequest.Queue requests.
type waiter struct {
	ready chan struct{} // closed when releases are notified from now on, or cannot be
	stop  context.CancelFunc

	// Guarded by Store.mu. Only a waiter that is notified is prolonged.
	until     time.Time
	notified  bool // releases are notified
	failed    bool // releases cannot be notified
	noticeDue bool // a notice is due when releases are notified: there may have been one before

	behindShared bool     // an attempt was refused because of shared holds
	gate         *session // that has locked the gate for it, or nil
}

// An ownedName is a name and one of its owners.
type ownedName struct{ name, owner string }

// maxWaitReady is how long the first Acquire of a waiter waits until releases are notified.
// Connections take a moment, and one that hangs takes longer. The waiter gets a notice when they
// are notified after all.
const maxWaitReady = time.Second

// Every waiter also gets a notice at these delays, each twice as long as the one before: other
// programs unlock keys without a notification, and so does the server when the session of a holder
// ends. After the last of them package holdfast tries as often by itself.
const (
	firstSignalDelay = 25 * time.Millisecond
	maxSignalDelay   = 2 * time.Second
)

// prolongWaiter prolongs the wait of an owner, and reports whether it is notified of releases.
func (s *engine) prolongWaiter(key Key, req *olddriver.AcquireRequest) (notified bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiters[key][ownedName{req.Name, req.Owner}]
	if w == nil || !w.notified {
		return false
	}
	if until := time.Now().Add(req.Queue); until.After(w.until) {
		w.until = until
	}
	return true
}

// startWaiter starts the wait of an owner, and reports whether it is notified of releases from now
// on. If that has failed for this owner, or takes long, no other Acquire waits for it. It is tried
// again when Queue is over.
func (s *engine) startWaiter(ctx context.Context, key Key, req *olddriver.AcquireRequest) (notified bool) {
	id := ownedName{req.Name, req.Owner}
	s.mu.Lock()
	w := s.waiters[key][id]
	if w == nil && !s.closed {
		w = &waiter{ready: make(chan struct{}), until: time.Now().Add(req.Queue)}
		waiting, stop := context.WithCancel(s.ctx)
		w.stop = stop
		if s.waiters[key] == nil {
			s.waiters[key] = map[ownedName]*waiter{}
		}
		s.waiters[key][id] = w
		s.running.Go(func() { s.runWaiter(waiting, w, id, key) })
		s.mu.Unlock()
		limited, cancel := context.WithTimeout(ctx, maxWaitReady)
		defer cancel()
		_ = waitUntilDone(limited, w.ready) // A notice is due then.
		s.mu.Lock()
		w.noticeDue = !w.notified
	}
	defer s.mu.Unlock()
	return w != nil && w.notified
}

// runWaiter makes the releases of a key notify a waiter, sends the notices that come without a
// release, and ends the wait when it is over.
func (s *engine) runWaiter(ctx context.Context, w *waiter, id ownedName, key Key) {
	limited, cancel := context.WithDeadline(ctx, w.until)
	err := s.ensureMarked(limited, key)
	cancel()
	s.mu.Lock()
	w.notified, w.failed = err == nil, err != nil
	due := w.noticeDue
	expiry := time.NewTimer(time.Until(w.until))
	s.mu.Unlock()
	close(w.ready)
	defer expiry.Stop()
	ask := olddriver.Notice{Kind: olddriver.Ask, Name: id.name, Owner: id.owner}
	if due && err == nil {
		s.notices.Send(ask)
	}
	var look <-chan time.Time // nil if there is none
	delay := s.firstSignalDelay
	if delay > 0 && err == nil {
		look = time.After(delay)
	}
	for {
		select {
		case <-look:
			s.notices.Send(ask)
			if look, delay = nil, 2*delay; delay < maxSignalDelay {
				look = time.After(delay)
			}
		case <-expiry.C:
			s.mu.Lock()
			left := time.Until(w.until)
			var gate *session
			if left <= 0 && ctx.Err() == nil {
				gate = s.endWaiter(key, id)
			}
			s.mu.Unlock()
			if gate != nil {
				s.openGate(gate, key)
			}
			expiry.Reset(left)
		case <-ctx.Done():
			return
		}
	}
}

// endWaiter ends the wait of an owner, if there is one. It returns the session in which the caller
// is to open the gate then, or nil. The caller holds s.mu.
func (s *engine) endWaiter(key Key, id ownedName) (gate *session) {
	w := s.waiters[key][id]
	if w == nil {
		return nil
	}
	if delete(s.waiters[key], id); len(s.waiters[key]) == 0 {
		delete(s.waiters, key)
	}
	w.stop()
	return w.gate
}

// stopWaiting ends the wait of an owner, if there is one, and opens its gate.
func (s *engine) stopWaiting(ctx context.Context, key Key, name, owner string) {
	s.mu.Lock()
	gate := s.endWaiter(key, ownedName{name, owner})
	s.mu.Unlock()
	if gate == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, maxGateReply)
	defer cancel()
	_ = waitUntilDone(limited, s.openGate(gate, key)) // It is opened later then.
}

// hasWaiters reports whether a key has a waiter whose releases can be notified. The caller holds
// s.mu.
func (s *engine) hasWaiters(key Key) bool {
	for _, w := range s.waiters[key] {
		if !w.failed {
			return true
		}
	}
	return false
}

// keysWithWaiters returns the keys that need a mark.
func (s *engine) keysWithWaiters() (keys []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.waiters {
		if s.hasWaiters(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// onNotification handles the notification of a release, whose payload is the key.
func (s *engine) onNotification(payload string) {
	if key, err := readKey(payload); err == nil {
		s.signalWaiters(key)
	}
}

// signalAll sends the notices for all waiters: a notification may have been missed.
func (s *engine) signalAll() { s.signalWaiters(s.keysWithWaiters()...) }

// signalWaiters sends the notices for the waiters of keys.
func (s *engine) signalWaiters(keys ...Key) {
	var asks []olddriver.Notice
	s.mu.Lock()
	for _, key := range keys {
		for id, w := range s.waiters[key] {
			if w.notified {
				asks = append(asks, olddriver.Notice{Kind: olddriver.Ask, Name: id.name, Owner: id.owner})
			}
			w.noticeDue = !w.notified
		}
	}
	s.mu.Unlock()
	for _, ask := range asks {
		s.notices.Send(ask)
	}
}

package advisory

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// A lease is the state of a key that a store holds, or is about to acquire or unlock. The server lets
// a session lock a key any number of times, in both modes. The leases therefore exclude the owners of
// one store from each other. A key has one exclusive lease, or shared ones that have locked the key
// once each.
//
// Advisory locks have no TTL. The server ends a session that is silent. A timer here unlocks a key
// that expires while its session is alive.
type lease struct {
	key    Key
	name   string
	owner  string
	holder string
	shared bool
	probes bool // its attempt reports whether shared locks are in the way

	// Guarded by Store.mu.
	session         *session // nil while one is being assigned
	state           leaseState
	done            chan struct{} // closed when the lease is no longer pending
	token           int64
	since           time.Time
	until           time.Time
	expiryTimer     *time.Timer
	err             error // why the key was not acquired, or how its session ended
	unlockConfirmed bool  // the server has confirmed that the key was held when it was unlocked
}

// leaseState is the step in the life of a lease.
type leaseState uint8

const (
	leaseAcquiring leaseState = iota // pending: the dial or the lock statement is in flight
	leaseHeld
	leaseUnlocking // pending: the unlock statement has been sent
	leaseGone
)

func (l *lease) pending() bool { return l.state == leaseAcquiring || l.state == leaseUnlocking }

// binaryParams returns the key as the parameters of a statement.
func (k Key) binaryParams() [][]byte {
	bits := binary.BigEndian.AppendUint64(nil, uint64(k.bits))
	if k.pair {
		return [][]byte{bits[:4], bits[4:]}
	}
	return [][]byte{bits}
}

// statementSuffix is the end of the names of statements for the key's kind.
func (k Key) statementSuffix() string {
	if k.pair {
		return "_pair"
	}
	return ""
}

// tryLockStatement returns the statement that tries to lock the key.
func (l *lease) tryLockStatement(done func([]byte, error)) statement {
	name, params := "holdfast_try", l.key.binaryParams()
	switch {
	case l.shared:
		name, params = "holdfast_try_shared", append(params, l.key.gateKey().binaryParams()...)
	case l.probes:
		name = "holdfast_try_waiting"
	}
	return statement{name: name + l.key.statementSuffix(), params: params, done: done}
}

// unlockKeyStatement returns the statement that unlocks the key and checks for waiters.
func (l *lease) unlockKeyStatement(done func([]byte, error)) statement {
	name, params := "holdfast_unlock", append(l.key.binaryParams(), l.key.waiterKey().binaryParams()...)
	if l.shared {
		name = "holdfast_unlock_shared"
	}
	return statement{name: name + l.key.statementSuffix(), params: params, done: done}
}

// publicRecord describes the lease to other callers. The caller holds the store's mutex.
func (l *lease) publicRecord() olddriver.Record {
	left := time.Until(l.until)
	rec := olddriver.Record{
		Name: l.name, Holder: l.holder, Token: l.token,
		Since: l.since.Round(0), Until: l.until.Round(0), Remaining: max(left, 1),
	}
	if l.shared {
		rec.Limit = olddriver.Shared
	}
	return rec
}

// findLease returns the lease of an owner on a key, or nil. The caller holds s.mu.
func (s *engine) findLease(key Key, name, owner string) *lease {
	for _, l := range s.leases[key] {
		if l.owner == owner && l.name == name {
			return l
		}
	}
	return nil
}

// leaseInWay returns a lease on a key that a request does not tolerate, or nil. If there are
// several, it is the oldest that is held. The caller holds s.mu.
func (s *engine) leaseInWay(key Key, shared bool) (inWay *lease) {
	for _, l := range s.leases[key] {
		switch {
		case shared && l.shared:
		case l.state == leaseHeld && time.Now().Before(l.until):
			return l
		case inWay == nil:
			inWay = l
		}
	}
	return inWay
}

// removeLease removes a lease on a key that the store does not hold. The caller holds s.mu.
func (s *engine) removeLease(l *lease) {
	if l.state == leaseGone {
		return
	}
	wasPending := l.pending()
	l.state = leaseGone
	if l.expiryTimer != nil {
		l.expiryTimer.Stop()
	}
	if l.session != nil {
		l.session.leaseCount--
	}
	leases := s.leases[l.key]
	if i := slices.Index(leases, l); len(leases) > 1 {
		s.leases[l.key] = slices.Delete(leases, i, i+1)
	} else {
		delete(s.leases, l.key)
	}
	if wasPending {
		close(l.done)
	}
}

// extendLease makes a lease valid until at least ttl from now. The caller holds s.mu.
func (s *engine) extendLease(l *lease, ttl time.Duration) {
	until := time.Now().Add(ttl)
	if !until.After(l.until) {
		return
	}
	l.until = until
	if l.expiryTimer == nil {
		l.expiryTimer = time.AfterFunc(ttl, func() { s.expireLease(l) })
		return
	}
	l.expiryTimer.Reset(ttl)
}

// expireLease unlocks a key after its lease has expired.
func (s *engine) expireLease(l *lease) {
	s.mu.Lock()
	if l.state != leaseHeld || time.Now().Before(l.until) {
		s.mu.Unlock()
		return
	}
	s.unlockLease(l)
}

// unlockLease sends the statement that unlocks a key. The caller holds s.mu, and unlockLease
// releases it. The returned channel is closed when the server has replied.
func (s *engine) unlockLease(l *lease) (done <-chan struct{}) {
	if l.state == leaseHeld {
		l.done = make(chan struct{})
	}
	l.state = leaseUnlocking
	done = l.done
	sess := l.session
	s.mu.Unlock()
	sess.sendStatement(l.unlockKeyStatement(func(value []byte, err error) { s.onUnlocked(l, value, err) }))
	return done
}

// onUnlocked handles the reply to unlockLease. If the server has no lock where the store recorded
// one, then nothing recorded for that session is certain.
func (s *engine) onUnlocked(l *lease, value []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.state == leaseGone {
		return // with the session
	}
	// Only the check for waiters needs room in the lock table, and it comes after the unlocking.
	markUnknown := pgclient.SQLState(err) == lockTableFull
	unlocked := markUnknown || err == nil && len(value) == 1
	if !unlocked && (err != nil || !l.since.IsZero()) {
		l.session.closeNow()
	}
	l.unlockConfirmed = unlocked
	s.removeLease(l)
	if markUnknown || unlocked && value[0] == 0 {
		s.notifyReleased(l.key)
	}
}

// lockTableFull is the error of a server with a full lock table.
const lockTableFull = "53200"

// onSessionEnded removes the leases of a session that has ended. The function that it returns
// sends the notices of their loss.
func (s *engine) onSessionEnded(sess *session, cause error) (notify func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeSession(sess)
	s.recordOrphan(sess, cause)
	var lost []*lease
	for _, leases := range s.leases {
		for _, l := range slices.Clone(leases) { // removeLease changes the slice.
			if l.session != sess {
				continue
			}
			if l.state == leaseHeld {
				lost = append(lost, l)
			}
			l.err = sess.endErr
			s.removeLease(l)
		}
	}
	return func() {
		for _, l := range lost {
			s.notices.Send(olddriver.Notice{Kind: olddriver.Lost, Name: l.name, Owner: l.owner})
		}
	}
}

// recordOrphan records a session that may have outlived its connection. It does nothing if the
// server ended the session. The caller holds s.mu.
func (s *engine) recordOrphan(sess *session, cause error) {
	if !s.closed && pgclient.SQLState(cause) == "" {
		s.orphans = append(s.orphans, orphan{pid: sess.pid, started: sess.started})
	}
}

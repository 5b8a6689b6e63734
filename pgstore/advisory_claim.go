package pgstore

import (
	"encoding/binary"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A claim is what a store knows of a key that it holds, or is about to take or
// give back. A session may take a key any number of times, so that it is the
// claims that keep the owners within a store apart.
//
// Advisory locks have no TTL. The server ends a session that is silent; what
// runs out while its session is alive is given back by a timer here.
type claim struct {
	key    Key
	name   string
	owner  string
	holder string

	// Guarded by AdvisoryStore.mu.
	on      *session // nil while one is looked for
	state   claimState
	settled chan struct{} // closed when a claim in flux is no longer
	token   int64
	since   time.Time
	until   time.Time
	expiry  *time.Timer
	err     error // why the key could not be taken
	ours    bool  // the server has confirmed that the key was ours when it was given back
}

// claimState is where a claim is on its way.
type claimState uint8

const (
	taking claimState = iota // in flux: the server has been asked for the key
	held
	giving // in flux: the server has been told to unlock the key
	gone
)

func (c *claim) inFlux() bool { return c.state == taking || c.state == giving }

// params is the key as the parameters of a statement.
func (k Key) params() [][]byte {
	bits := binary.BigEndian.AppendUint64(nil, uint64(k.bits))
	if k.pair {
		return [][]byte{bits[:4], bits[4:]}
	}
	return [][]byte{bits}
}

// kind is what the name of a statement ends in that is for the kind of the key.
func (k Key) kind() string {
	if k.pair {
		return "_pair"
	}
	return ""
}

// try is the statement that asks for the key.
func (c *claim) try(done func([]byte, error)) statement {
	return statement{name: "holdfast_try" + c.key.kind(), params: c.key.params(), done: done}
}

// unlock is the statement that gives the key back, and looks for those who wait.
func (c *claim) unlock(done func([]byte, error)) statement {
	params := append(c.key.params(), c.key.mark().params()...)
	return statement{name: "holdfast_unlock" + c.key.kind(), params: params, done: done}
}

// record describes the claim to others. The caller holds the store's mutex.
func (c *claim) record() driver.Record {
	left := time.Until(c.until)
	return driver.Record{
		Name: c.name, Holder: c.holder, Token: c.token, Since: c.since.Round(0), Until: c.until.Round(0), Remaining: max(left, 1),
	}
}

// drop removes a claim whose key the store does not hold. The caller holds s.mu.
func (s *AdvisoryStore) drop(c *claim) {
	if c.state == gone {
		return
	}
	flux := c.inFlux()
	c.state = gone
	if c.expiry != nil {
		c.expiry.Stop()
	}
	if c.on != nil {
		c.on.holds--
	}
	if s.claims[c.key] == c {
		delete(s.claims, c.key)
	}
	if flux {
		close(c.settled)
	}
}

// keep notes that a claim is good until ttl from now. The caller holds s.mu.
func (s *AdvisoryStore) keep(c *claim, ttl time.Duration) {
	until := time.Now().Add(ttl)
	if !until.After(c.until) {
		return
	}
	c.until = until
	if c.expiry == nil {
		c.expiry = time.AfterFunc(ttl, func() { s.expire(c) })
		return
	}
	c.expiry.Reset(ttl)
}

// expire gives back a key whose time is over.
func (s *AdvisoryStore) expire(c *claim) {
	s.mu.Lock()
	if c.state != held || time.Now().Before(c.until) {
		s.mu.Unlock()
		return
	}
	s.giveBack(c)
}

// giveBack tells the server to unlock a key. The caller holds s.mu, which
// giveBack lets go of. The channel is closed when the server has answered.
func (s *AdvisoryStore) giveBack(c *claim) (settled <-chan struct{}) {
	if c.state == held {
		c.settled = make(chan struct{})
	}
	c.state = giving
	settled = c.settled
	on := c.on
	s.mu.Unlock()
	on.send(c.unlock(func(value []byte, err error) { s.gaveBack(c, value, err) }))
	return settled
}

// gaveBack is the answer to giveBack. If the server knows nothing of a lock that
// the store believed in, then nothing that is believed of its session is certain.
func (s *AdvisoryStore) gaveBack(c *claim, value []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.state == gone {
		return // with the session
	}
	// Only the look needs room in the lock table, and comes after the unlocking.
	unseen := sqlState(err) == outOfRoom
	unlocked := unseen || err == nil && len(value) == 1
	if !unlocked && (err != nil || c.err == nil) {
		c.on.abandon()
	}
	c.ours = unlocked
	s.drop(c)
	if unseen || unlocked && value[0] == 0 {
		s.tell(c.key)
	}
}

// outOfRoom is the error of a server whose lock table is full.
const outOfRoom = "53200"

// sessionLost ends the claims that live on a session. The function that it
// returns tells those who want to know.
func (s *AdvisoryStore) sessionLost(on *session, cause error) (tell func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(on)
	s.haunt(on, cause)
	var lost []*claim
	for _, c := range s.claims {
		if c.on != on {
			continue
		}
		if c.state == held {
			lost = append(lost, c)
		}
		c.err = on.lost
		s.drop(c)
	}
	listeners := s.losses
	return func() {
		for _, c := range lost {
			for _, f := range listeners {
				(*f)(c.name, c.owner)
			}
		}
	}
}

// haunt notes that a session may have outlived its connection, unless it was the
// server that ended it. The caller holds s.mu.
func (s *AdvisoryStore) haunt(on *session, cause error) {
	if !s.closed && sqlState(cause) == "" {
		s.ghosts = append(s.ghosts[max(0, len(s.ghosts)-maxGhosts+1):], ghost{pid: on.pid, started: on.started})
	}
}

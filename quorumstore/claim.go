package quorumstore

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// A claim is what is under way for one owner of one name. It exists while
// anything is under way or in doubt.
type claim struct {
	key  claimKey
	turn chan struct{} // taken by the Acquire that is under way; room for one

	// The rest is guarded by Store.mu.
	users int
	lanes []lane // one for each node
}

type claimKey struct{ name, owner string }

// claim returns the claim of an owner, for one user more.
func (s *Store) claim(name, owner string) *claim {
	key := claimKey{name, owner}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[key]
	if c == nil {
		c = &claim{key: key, turn: make(chan struct{}, 1), lanes: make([]lane, len(s.nodes))}
		s.claims[key] = c
	}
	c.users++
	return c
}

// unclaim ends one use of a claim.
func (s *Store) unclaim(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(c)
}

// leave is unclaim for who holds s.mu.
func (s *Store) leave(c *claim) {
	c.users--
	if c.users == 0 {
		delete(s.claims, c.key)
	}
}

// begin waits until no other Acquire of the owner is under way: the clean-up of
// one must not end what another was granted.
func (s *Store) begin(ctx context.Context, c *claim) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return notApplied{ctx.Err()}
	case <-s.closing:
		return driver.ErrClosed
	}
}

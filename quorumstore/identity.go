package quorumstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Identities record which node is which server. Nodes that are one server have several votes there,
// and a majority of the votes is no majority of the servers. The nodes that implement
// driver.Identifier are therefore compared before the first acquisition returns. That costs it a
// round trip, and no connection more. While a node has failed to identify itself, each later
// acquisition begins another comparison.
type identities struct {
	known        atomic.Bool           // every node is identified, or cannot be
	compared     atomic.Bool           // an acquisition has waited for the first comparison
	duplicateErr atomic.Pointer[error] // returned by acquisitions once two nodes were found to be the same

	mu    sync.Mutex
	names []string    // of each node, "" if it is not known
	last  *comparison // nil before the first
}

// A comparison is one request to each node for its identity.
type comparison struct {
	done      []chan struct{} // of each node, closed at the end of its request
	remaining int             // nodes with a request that has not ended
	failed    bool            // a request has failed that may succeed later
}

func newIdentities(nodes int) *identities { return &identities{names: make([]string, nodes)} }

// err returns an error if two of the nodes are known to be the same.
func (ids *identities) err() error {
	if duplicate := ids.duplicateErr.Load(); duplicate != nil {
		return *duplicate
	}
	return nil
}

// current returns the comparison under way, or the last one. begins is true if it is to begin now:
// it is the first, or it follows a comparison that has failed.
func (ids *identities) current() (c *comparison, begins bool) {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if ids.last != nil && (ids.last.remaining > 0 || !ids.last.failed) {
		return ids.last, false
	}
	c = &comparison{done: make([]chan struct{}, len(ids.names)), remaining: len(ids.names)}
	for i := range c.done {
		c.done[i] = make(chan struct{})
	}
	ids.last = c
	return c, true
}

// identify requests the identities of the nodes unless that is under way, or nothing is left to
// learn. It reports whether it has begun the comparison.
func (s *Store) identify() (*comparison, bool) {
	c, begins := s.ids.current()
	if !begins {
		return c, false
	}
	f := newFanOut[string](context.Background(), s, s.timeout)
	f.count = func(node int, name string, err error) bool {
		s.ids.finishRequest(c, s.nodes[node], name, err)
		return false
	}
	f.send(func(ctx context.Context, n *node) (string, error) {
		if identifier, ok := n.Store.(driver.Identifier); ok {
			return identifier.Identity(ctx)
		}
		return "", errNoMethod
	})
	return c, true
}

// finishRequest records the end of the request to a node. The node need not be identified again if
// it was, or if its reply would be the same every time.
func (ids *identities) finishRequest(c *comparison, n *node, name string, err error) {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	defer close(c.done[n.index])
	switch {
	case err == nil && name != "":
		ids.addIdentity(n, name)
	case err != nil && !driver.Permanent(err):
		c.failed = true
	}
	c.remaining--
	if c.remaining == 0 && !c.failed {
		ids.known.Store(true)
	}
}

// addIdentity records the identity of a node, and compares it with the others. Identities are
// compared among stores of one family, which is the first word of Guarantees.Store: "postgres" and
// "postgres advisory" can be one server. The caller holds ids.mu.
func (ids *identities) addIdentity(n *node, name string) {
	family, _, _ := strings.Cut(n.guarantees.Store, " ")
	name = family + " server (" + name + ")"
	ids.names[n.index] = ""
	for other, known := range ids.names {
		if known == name {
			err := fmt.Errorf("%w: nodes %d and %d of the quorum are the same %s",
				driver.ErrInvalid, min(other, n.index)+1, max(other, n.index)+1, name)
			ids.duplicateErr.CompareAndSwap(nil, &err)
			break
		}
	}
	ids.names[n.index] = name
}

// checkDistinctNodes returns an error if two of the nodes are the same. The first round that is won
// waits until the nodes that have voted are identified, as long as a request may take, and for the
// others as long as that took. A round that begins a later comparison waits for the nodes that have
// voted, as long as the round took.
func (r *round) checkDistinctNodes(ctx context.Context) error {
	ids := r.s.ids
	if ids.known.Load() {
		return ids.err()
	}
	c, begun := r.s.identify()
	first := !ids.compared.Load()
	if !first && !begun {
		return ids.err()
	}
	limit, cancel := context.WithTimeout(ctx, r.s.timeout)
	defer cancel()
	grace := make(chan struct{})
	for _, voted := range []bool{true, false} {
		if !voted && !first {
			break
		}
		if !voted || !first {
			timer := time.AfterFunc(max(basePause, time.Since(r.began)), func() { close(grace) })
			defer timer.Stop()
		}
		for i, settled := range c.done {
			if r.votes[i].cast != voted {
				continue
			}
			select {
			case <-settled:
			case <-grace:
			case <-limit.Done():
				if ctx.Err() != nil {
					return r.acquireError("cut short", ctx.Err())
				}
			case <-r.s.closing.Done():
				return r.acquireError("cut short", driver.ErrClosed)
			}
		}
	}
	ids.compared.Store(true)
	return ids.err()
}

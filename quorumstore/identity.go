package quorumstore

import (
	"context"
	"fmt"
	"slices"
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
	names []string // of each node, "" if it is not known

	// The requests for the identities, one to each node.
	ended   []chan struct{} // of each node, closed at the end of its request; nil before the first
	missing int             // requests that have not ended
	failed  bool            // one has failed that may succeed later
}

// err returns an error if two of the nodes are known to be the same.
func (ids *identities) err() error {
	if duplicate := ids.duplicateErr.Load(); duplicate != nil {
		return *duplicate
	}
	return nil
}

// identify requests the identities of the nodes: the first time, and after requests that have
// failed. It returns the ends of the requests, and reports whether it has begun them.
func (s *Store) identify() (ended []chan struct{}, begun bool) {
	ids := &s.ids
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if ids.ended != nil && (ids.missing > 0 || !ids.failed) {
		return ids.ended, false
	}
	ids.ended, ids.missing, ids.failed = make([]chan struct{}, len(s.nodes)), len(s.nodes), false
	for i := range ids.ended {
		ids.ended[i] = make(chan struct{})
	}
	f := newFanOut[string](context.Background(), s, s.timeout)
	f.count = func(node int, name string, err error) bool {
		ids.recordIdentity(s.nodes[node], name, err)
		return false
	}
	f.send(func(ctx context.Context, n *node) (string, error) {
		if identifier, ok := n.Store.(driver.Identifier); ok {
			return identifier.Identity(ctx)
		}
		return "", errNoMethod
	})
	return ids.ended, true
}

// recordIdentity records the reply of a node, and compares it with those of the others. The node is
// not requested again if it has replied, or would reply the same every time. Identities are
// compared among stores of one family, which is the first word of Guarantees.Store: "postgres" and
// "postgres advisory" can be one server.
func (ids *identities) recordIdentity(n *node, name string, err error) {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	defer close(ids.ended[n.index])
	ids.missing--
	switch {
	case err == nil && name != "":
		name = serverName(n.guarantees.Store, name)
		ids.names[n.index] = ""
		if other := slices.Index(ids.names, name); other >= 0 {
			err := fmt.Errorf("%w: nodes %d and %d of the quorum are the same %s",
				driver.ErrInvalid, min(other, n.index)+1, max(other, n.index)+1, name)
			ids.duplicateErr.CompareAndSwap(nil, &err)
		}
		ids.names[n.index] = name
	case err != nil && !driver.Permanent(err):
		ids.failed = true
	}
	if ids.missing == 0 && !ids.failed {
		ids.known.Store(true)
	}
}

// serverName returns the name of a server for comparisons and messages. store is the kind of its
// store.
func serverName(store, identity string) string {
	family, _, _ := strings.Cut(store, " ")
	return family + " server (" + identity + ")"
}

// checkDistinctNodes returns an error if two of the nodes are the same. The first round that is won
// waits until the nodes that have voted are identified, as long as a request may take, and for the
// others as long as that took. A round that begins a later comparison waits for the nodes that have
// voted, as long as the round took.
func (r *round) checkDistinctNodes(ctx context.Context) error {
	ids := &r.s.ids
	if ids.known.Load() {
		return ids.err()
	}
	ended, begun := r.s.identify()
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
		for i, end := range ended {
			if r.votes[i].cast != voted {
				continue
			}
			select {
			case <-end:
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

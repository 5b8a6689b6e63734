package quorumstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/memstore"
)

// A cluster is a set of servers that quorums are made of.
type cluster []*server

// A server keeps the locks of one node.
type server struct {
	tb    testing.TB
	ahead time.Duration // of its clock against ours
	over  chan struct{} // closed when the test is over

	mu    sync.Mutex
	store *memstore.Store
	fault faultstore.Fault // meets every request
}

func newCluster(tb testing.TB, size int) cluster {
	var c cluster
	tb.Cleanup(func() { time.Sleep(time.Hour) }) // in virtual time: for what is slow to come back
	for range size {
		s := &server{tb: tb, over: make(chan struct{})}
		s.restart()
		tb.Cleanup(func() { close(s.over) })
		c = append(c, s)
	}
	return c
}

// connect makes a client's own stores of the servers.
func (c cluster) connect() []*conn {
	var conns []*conn
	for _, s := range c {
		conns = append(conns, &conn{faultstore.Wrap(&backend{server: s})})
	}
	return conns
}

// client makes a client that the test closes in the end.
func (c cluster) client(tb testing.TB) *engine { return join(tb, c.connect()) }

func join(tb testing.TB, conns []*conn) *engine {
	s := newEngine(stores(conns), &Options{CloseStores: true})
	tb.Cleanup(func() { s.Close() })
	return s
}

func stores(conns []*conn) []driver.Store {
	var nodes []driver.Store
	for _, c := range conns {
		nodes = append(nodes, c)
	}
	return nodes
}

// restart makes the server forget everything.
func (s *server) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store = memstore.New()
}

// set makes every request to the server meet with a fault; nil ends that.
func (s *server) set(f faultstore.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

func (s *server) current() faultstore.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

func (s *server) memory() *memstore.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store
}

// holder returns the holder of a name on the server.
func (s *server) holder(name string) string {
	records, err := s.memory().Lookup(context.Background(), name)
	if err != nil {
		s.tb.Fatal(err)
	}
	if len(records) == 0 {
		return ""
	}
	return records[0].Holder
}

// hang never answers, whatever becomes of the context.
func (s *server) hang(context.Context, faultstore.Op, func()) error {
	<-s.over
	return errors.New("the test is over")
}

// slow makes a fault that delays requests and answers.
func slow(there, back time.Duration) faultstore.Fault {
	return func(_ context.Context, _ faultstore.Op, apply func()) error {
		time.Sleep(there)
		apply()
		time.Sleep(back)
		return nil
	}
}

// slowUntil makes a fault that lets requests through when a channel is closed.
func slowUntil(revived <-chan struct{}) faultstore.Fault {
	return func(_ context.Context, _ faultstore.Op, apply func()) error {
		<-revived
		apply()
		return nil
	}
}

// jitter is slow, by times at random.
func jitter(upTo time.Duration) faultstore.Fault {
	return func(ctx context.Context, op faultstore.Op, apply func()) error {
		return slow(rand.N(upTo), rand.N(upTo))(ctx, op, apply)
	}
}

// A conn is a client's store of one server, with faults of its own.
type conn struct{ *faultstore.Store }

// Guarantees are those of a server that keeps everything in memory.
func (c *conn) Guarantees() driver.Guarantees {
	g := c.Store.Guarantees()
	g.Store = "test"
	g.Crash, g.Restart, g.Failover = driver.FateKept, driver.FateForgotten, driver.FateForgotten
	return g
}

package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
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
	space string          // of memstore.Named
	store *memstore.Store // of the space, without faults
	over  chan struct{}   // closed when the test is over

	mu    sync.Mutex
	ahead time.Duration    // of its clock against ours
	fault faultstore.Fault // meets every request
}

func newCluster(tb testing.TB, size int) cluster {
	var c cluster
	tb.Cleanup(func() { time.Sleep(time.Hour) }) // in virtual time: for what is slow to come back
	for range size {
		space := fmt.Sprint("server ", owners.Add(1))
		s := &server{tb: tb, space: space, store: memstore.Named(space), over: make(chan struct{})}
		tb.Cleanup(func() { close(s.over) })
		c = append(c, s)
	}
	return c
}

var everyOp = []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release, faultstore.Lookup, faultstore.Break}

// connect makes a client's own stores of the servers. Their requests meet with the faults of the
// server, and of the conn.
func (c cluster) connect() []*conn {
	var conns []*conn
	for _, s := range c {
		net := faultstore.Wrap(&backend{memstore.Named(s.space), s})
		for _, op := range everyOp {
			net.Set(op, func(ctx context.Context, op faultstore.Op, apply func()) error {
				if fault := s.current(); fault != nil {
					return fault(ctx, op, apply)
				}
				apply()
				return nil
			})
		}
		conns = append(conns, &conn{faultstore.Wrap(net)})
	}
	return conns
}

// A backend is the side of a server that one client is connected to.
type backend struct {
	driver.Store
	server *server
}

// Acquire grants tokens by the server's clock.
func (b *backend) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	b.server.mu.Lock()
	if ahead := b.server.ahead; ahead != 0 {
		req.Floor = max(req.Floor, time.Now().Add(ahead).UnixMicro())
	}
	b.server.mu.Unlock()
	return b.Store.Acquire(ctx, req)
}

// List meets with the fault of a Lookup.
func (b *backend) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	if fault := b.server.current(); fault != nil {
		if err := fault(ctx, faultstore.Lookup, func() {}); err != nil {
			return func(yield func(driver.Record, error) bool) { yield(driver.Record{}, err) }
		}
	}
	return b.Store.List(ctx, prefix)
}

// client makes a client that the test closes in the end.
func (c cluster) client(tb testing.TB) *Store { return join(tb, c.connect()) }

func join(tb testing.TB, conns []*conn) *Store {
	s := New(stores(conns), &Options{CloseStores: true})
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

// restart makes the server forget its holds.
func (s *server) restart() {
	var records []driver.Record
	for rec, err := range s.store.List(context.Background(), "") {
		if err != nil {
			s.tb.Error(err)
		}
		records = append(records, rec)
	}
	for _, rec := range records {
		if _, err := s.store.Break(context.Background(), rec.Name, 0); err != nil {
			s.tb.Error(err)
		}
	}
}

// step sets how far the clock of the server is ahead.
func (s *server) step(ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = ahead
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

// records returns those of the name on the server.
func (s *server) records() []driver.Record {
	records, err := s.store.Lookup(context.Background(), name)
	if err != nil {
		s.tb.Fatal(err)
	}
	return records
}

// holder returns the holder of the name on the server, "" if it is free.
func (s *server) holder() string {
	if records := s.records(); len(records) > 0 {
		return records[0].Holder
	}
	return ""
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

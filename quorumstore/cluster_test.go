package quorumstore

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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
	tb   testing.TB
	over chan struct{} // closed when the test is over

	mu    sync.Mutex
	ahead time.Duration // of its clock against ours
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

// connect makes a client's own stores of the servers. Their requests meet with the faults of the
// server, and of the conn.
func (c cluster) connect() []*conn {
	var conns []*conn
	for _, s := range c {
		net := faultstore.Wrap(&backend{server: s})
		for _, op := range []faultstore.Op{faultstore.Acquire, faultstore.Renew, faultstore.Release, faultstore.Lookup, faultstore.Break} {
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
	*server
	closed atomic.Bool
}

// Acquire grants tokens by the server's clock.
func (b *backend) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	b.mu.Lock()
	if b.ahead != 0 {
		req.Floor = max(req.Floor, time.Now().Add(b.ahead).UnixMicro())
	}
	b.mu.Unlock()
	return b.open().Acquire(ctx, req)
}

func (b *backend) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	return b.open().Renew(ctx, reqs)
}

func (b *backend) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	return b.open().Release(ctx, req)
}

func (b *backend) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	return b.open().Lookup(ctx, name)
}

func (b *backend) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	if fault := b.current(); fault != nil {
		if err := fault(ctx, faultstore.Lookup, func() {}); err != nil {
			return func(yield func(driver.Record, error) bool) { yield(driver.Record{}, err) }
		}
	}
	return b.open().List(ctx, prefix)
}

func (b *backend) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	return b.open().Break(ctx, name, token)
}

func (b *backend) Guarantees() driver.Guarantees { return b.memory().Guarantees() }

func (b *backend) Close() error {
	b.closed.Store(true)
	return nil
}

// closedStore is what a backend that is closed has.
var closedStore = func() *memstore.Store {
	s := memstore.New()
	_ = s.Close() // It returns nil.
	return s
}()

func (b *backend) open() *memstore.Store {
	if b.closed.Load() {
		return closedStore
	}
	return b.memory()
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

// restart makes the server forget everything.
func (s *server) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store = memstore.New()
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
	return func(ctx context.Context, _ faultstore.Op, apply func()) error {
		select {
		case <-revived:
			apply()
			return nil
		case <-ctx.Done():
			go func() { <-revived; apply() }()
			return ctx.Err()
		}
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

//go:build unix

package advisory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// sessionsOf are the server processes of a store.
func sessionsOf(s *Store) []int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pids []int32
	for sess := range s.sessions {
		pids = append(pids, int32(sess.pid))
	}
	return pids
}

// Every hold of a session that the server ends is lost at once, and said to be.
func TestTerminated(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	s, other := open(t, server.Addr, keysOf(t)), open(t, server.Addr, keysOf(t))
	lost := make(chan string, 8)
	stop := s.Notify(func(name, owner string, _ int64) { lost <- name + owner })
	want := map[string]bool{}
	var holds []driver.Request
	for i := range 4 {
		req := grant(t, s, fmt.Sprint("name/", i), time.Hour)
		holds = append(holds, req)
		want[req.Name+req.Owner] = true
	}
	released := grant(t, s, "released", time.Hour)
	release(t, s, released)

	began := time.Now()
	pgtest.QueryValue[bool](t, other.pool, "SELECT pg_terminate_backend($1)", sessionsOf(s)[0])
	for range holds {
		select {
		case name := <-lost:
			if !want[name] {
				t.Errorf("%q is said to be lost", name)
			}
			delete(want, name)
		case <-time.After(pgtest.Bound):
			t.Fatalf("the loss of %v was not notified", want)
		}
	}
	t.Logf("the loss of the connection was notified after %v", time.Since(began))
	for _, req := range holds {
		if got := stateOf(t, s, req); got != driver.Lost {
			t.Errorf("Renew of a lost lock: %v, want lost", got)
		}
		if release(t, s, req) {
			t.Error("Release of a lost lock reports a hold")
		}
		takes(t, other, req.Name)
	}
	stop()
	grant(t, s, "another", time.Hour)
	pgtest.QueryValue[bool](t, other.pool, "SELECT pg_terminate_backend($1)", sessionsOf(s)[0])
	pgtest.Eventually(t, "loss", func() bool { return len(sessionsOf(s)) == 0 })
	if len(lost) != 0 {
		t.Errorf("%q is said to be lost after nobody wants to know", <-lost)
	}
}

// Two clients behind a pooler of transactions are refused, and neither gets the
// lock.
func TestTransactionPooler(t *testing.T) {
	t.Parallel()
	opts := keysOf(t)
	key, _ := opts.Keys("name")
	addr := pgtest.PgBouncer().Addr
	for range 2 {
		s := open(t, addr, opts)
		res, err := s.Acquire(t.Context(), pgtest.Request("name", time.Minute))
		if res.Granted || !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("Acquire behind a pooler gives %+v, %v, want ErrUnsupported", res, err)
		}
	}
	direct := open(t, pgtest.Postgres().Addr, opts)
	for lock, err := range direct.Locks(t.Context()) {
		if err != nil || lock.Key == key {
			t.Errorf("after the refusals there is %+v, %v", lock, err)
		}
	}
}

// With a pooler of sessions the locks are those of everybody.
func TestSessionPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	pooler := servers.StartPgBouncer(t, server, "pool_mode=session")
	pooled := keysOf(t)
	pooled.SessionPooled = true
	a, b := open(t, pooler.Addr, pooled), open(t, pooler.Addr, pooled)
	direct := open(t, server.Addr, keysOf(t))
	req := grant(t, a, "name", time.Minute)
	refused(t, b, "name")
	refused(t, direct, "name")
	if stateOf(t, a, req) != driver.Held || !release(t, a, req) {
		t.Error("the holder behind the pooler has lost its lock")
	}
	grant(t, direct, "name", time.Minute)
}

// A Store with SessionPooled behind a pooler of transactions loses its locks as soon as another
// process of the server replies to a renewal.
func TestWronglyPooled(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.Postgres().Addr, keysOf(t))
	req := grant(t, s, "name", time.Minute)
	s.main.pid++ // Its goroutine reads until the renewal wakes it.
	if got := stateOf(t, s, req); got != driver.Lost {
		t.Errorf("Renew in another server process: %v, want lost", got)
	}
}

// A lost reply leaves nobody locked out, whatever it was the reply to.
func TestReplyLost(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	bound := func(request []byte) bool { return request[0] == 'B' }
	for range 5 {
		proxy := faultproxy.Start(t, server.Addr)
		s, other := open(t, proxy.Addr(), keysOf(t)), open(t, server.Addr, keysOf(t))
		release(t, s, grant(t, s, "first", time.Minute))
		proxy.LoseReply(bound)
		if res, err := s.Acquire(t.Context(), pgtest.Request("name", time.Minute)); err == nil || res.Granted || driver.IsNotApplied(err) {
			t.Errorf("Acquire without a reply: %+v, %v, want an error that leaves it open", res, err)
		}
		req := takes(t, s, "name")
		proxy.LoseReply(bound)
		if got := stateOf(t, s, req); got != driver.Lost {
			t.Errorf("Renew on a connection that was cut: %v, want lost", got)
		}
		req = takes(t, s, "name")
		proxy.LoseReply(bound)
		if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: req.Owner}); err == nil || driver.IsNotApplied(err) {
			t.Errorf("Release without a reply: %v, want an error that leaves it open", err)
		}
		release(t, other, takes(t, other, "name"))
		if release(t, s, req) {
			t.Error("the Release sent again reports a hold")
		}
	}
}

// A server that has not noticed the end of a connection does not lock out the
// one whose connection it was.
func TestOrphan(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	deaf := newHalfOpenRelay(t, server.Addr)
	s := open(t, deaf.Addr().String(), keysOf(t))
	other := open(t, server.Addr, keysOf(t))
	grant(t, s, "name", time.Hour)
	s.mu.Lock()
	_ = s.main.conn.PgConn().Conn().SetReadDeadline(time.Now()) // as an error of the network
	_ = s.main.conn.PgConn().Conn().Close()
	s.mu.Unlock()
	pgtest.Eventually(t, "loss", func() bool { return len(sessionsOf(s)) == 0 })
	takes(t, s, "name")
	refused(t, other, "name")
}

// newHalfOpenRelay passes connections on to an address, and keeps its own open when
// the client's end.
func newHalfOpenRelay(t *testing.T, addr string) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ends := []io.Closer{l}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, end := range ends {
			_ = end.Close()
		}
	})
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			backend, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				return
			}
			mu.Lock()
			ends = append(ends, client, backend)
			mu.Unlock()
			go func() { _, _ = io.Copy(backend, client) }()
			go func() { _, _ = io.Copy(client, backend); _ = client.Close() }()
		}
	}()
	return l
}

// No call outlives its context, whatever the server does.
func TestCallsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	proxies := []*faultproxy.Proxy{faultproxy.Start(t, pgtest.Postgres().Addr), faultproxy.Start(t, pgtest.Postgres().Addr)}
	s, fresh := open(t, proxies[0].Addr(), keysOf(t)), open(t, proxies[1].Addr(), keysOf(t))
	req := grant(t, s, "name", time.Minute)
	for _, proxy := range proxies {
		proxy.Hold(faultproxy.Down)
	}
	for _, step := range []struct {
		what string
		call func(ctx context.Context) error
	}{
		{"Acquire", func(ctx context.Context) error {
			_, err := s.Acquire(ctx, pgtest.Request("free", time.Minute))
			return err
		}},
		{"the first Acquire", func(ctx context.Context) error {
			_, err := fresh.Acquire(ctx, pgtest.Request("free", time.Minute))
			return err
		}},
		{"Acquire with another TTL", func(ctx context.Context) error {
			_, err := s.Acquire(ctx, pgtest.Request("longer", time.Hour))
			return err
		}},
		{"Renew", func(ctx context.Context) error {
			_, err := s.Renew(ctx, []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: time.Minute}})
			return err
		}},
		{"Release", func(ctx context.Context) error {
			_, err := s.Release(ctx, driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
			return err
		}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		ended := make(chan error, 1)
		go func() { ended <- step.call(ctx) }()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s of a silent server: %v, want context.Canceled", step.what, err)
			}
		case <-time.After(pgtest.Bound / 2):
			t.Fatalf("%s of a silent server goes on when its context has ended", step.what)
		}
	}
}

// Attempts that are given up at any moment leave no lock, once they are
// released, and no damage to the pool.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	opts := keysOf(t)
	proxy := faultproxy.Start(t, server.Addr)
	s := open(t, proxy.Addr(), opts)
	release(t, s, grant(t, s, "first", time.Hour))
	proxy.Delay(faultproxy.Up, 0, 5*time.Millisecond)
	proxy.Delay(faultproxy.Down, 0, 5*time.Millisecond)
	var group sync.WaitGroup
	for g := range 16 {
		group.Go(func() {
			for i := range 15 {
				req := pgtest.Request(fmt.Sprint(g, "/", i), time.Hour)
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(25*time.Millisecond))
				_, err := s.Acquire(ctx, req)
				cancel()
				released, releaseErr := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
				if releaseErr != nil || released && driver.IsNotApplied(err) {
					t.Errorf("Acquire: %v; its Release: %v, %v", err, released, releaseErr)
				}
			}
		})
	}
	group.Wait()
	if n := len(sessionsOf(s)); n != 1 {
		t.Errorf("there are %d connections, want the one", n)
	}
	for lock, err := range s.Locks(t.Context()) {
		if err != nil || lock.PID == sessionsOf(s)[0] {
			t.Errorf("left behind: %+v, %v", lock, err)
		}
	}
	if err := s.pool.Ping(t.Context()); err != nil {
		t.Errorf("the pool: %v", err)
	}
}

// A standby's locks are its own.
func TestStandby(t *testing.T) {
	t.Parallel()
	primary := servers.StartPostgres(t, "fsync=off")
	standby := servers.StartPostgresStandby(t, primary, "standby", "fsync=off")
	s := open(t, standby.Addr, nil)
	if res, err := s.Acquire(t.Context(), pgtest.Request("name", time.Minute)); res.Granted || !errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("Acquire on a standby gives %+v, %v, want an error", res, err)
	}
	if found, err := s.Lookup(t.Context(), "name"); len(found) > 0 || !errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("Lookup on a standby gives %v, %v, want an error", found, err)
	}
}

//go:build unix

package advisory

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// A stubServer is the other end of a connection that listens. It replies to every statement, or
// to none if it hangs.
type stubServer struct {
	hangs bool

	mu       sync.Mutex
	received []string // the names of statements
}

// listener returns a connection of s to the server.
func (b *stubServer) listener(s *engine) *markListener {
	ours, theirs := net.Pipe()
	e := &markListener{
		s:       s,
		session: &session{conn: ours, frontend: pgproto3.NewFrontend(ours, ours), onNotification: s.onNotification},
		ended:   make(chan struct{}),
		marks:   map[Key]*waiterMark{},
	}
	e.session.onEnded = e.onSessionEnded
	s.running.Go(e.session.readReplies)
	go b.serve(theirs)
	return e
}

func (b *stubServer) serve(conn net.Conn) {
	defer conn.Close()
	wire := pgproto3.NewBackend(conn, conn)
	for {
		message, err := wire.Receive()
		if err != nil {
			return
		}
		switch m := message.(type) {
		case *pgproto3.Bind:
			b.mu.Lock()
			b.received = append(b.received, m.PreparedStatement)
			b.mu.Unlock()
		case *pgproto3.Execute:
			wire.Send(&pgproto3.DataRow{Values: [][]byte{{1}}})
			wire.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		case *pgproto3.Sync:
			if b.hangs {
				continue
			}
			wire.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			if wire.Flush() != nil {
				return
			}
		}
	}
}

// waitsFor makes another owner wait for Key64(1) for an hour. It returns the owner's request and
// notices, and whether releases are notified from now on.
func waitsFor(t *testing.T, s *engine) (req olddriver.AcquireRequest, asks <-chan struct{}, notified bool) {
	s.firstSignalDelay = 0
	req = pgtest.Request("1", time.Minute)
	req.Queue = time.Hour
	asks = asksOf(t, s, req.Owner)
	return req, asks, s.startWaiter(context.Background(), Key64(1), &req)
}

// A server that does not let a connection listen delays an attempt for a bounded time, and the wait
// ends with Queue.
func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newEngine(nil, nil)
		s.dialListener = func(ctx context.Context) (*markListener, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		defer s.Close()
		began := time.Now()
		if _, _, notified := waitsFor(t, s); notified || time.Since(began) != maxWaitReady {
			t.Errorf("a waiter is notified of releases: %v after %v, want false after %v", notified, time.Since(began), maxWaitReady)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(s.waiters) != 0 {
			t.Error("a wait goes on after its end")
		}
	})
}

// A connection that does not reply delays an attempt for a bounded time, and is soon replaced. The
// waiter gets a notice then.
func TestSilentListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newEngine(nil, nil)
		listened := make(chan time.Time, 2)
		s.dialListener = func(context.Context) (*markListener, error) {
			listened <- time.Now()
			return (&stubServer{hangs: len(listened) == 1}).listener(s), nil
		}
		defer s.Close()
		began := time.Now()
		req, asks, notified := waitsFor(t, s)
		if notified || time.Since(began) > maxWaitReady {
			t.Errorf("a waiter is notified of releases: %v after %v, want false within %v", notified, time.Since(began), maxWaitReady)
		}
		pgtest.Signaled(t, asks)
		<-listened
		if took := (<-listened).Sub(began); took > pgclient.ListenTimeout+2*listenerCheckInterval {
			t.Errorf("a connection that does not answer was replaced after %v", took)
		}
		if synctest.Wait(); !s.prolongWaiter(Key64(1), &req) {
			t.Error("on the next one the waiter is not notified of releases")
		}
	})
}

// A connection without statements is pinged, and kept.
func TestIdleListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &stubServer{}
		e := server.listener(newEngine(nil, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		e.listenLoop(ctx)
		if ctx.Err() == nil {
			t.Error("a connection that answers was given up")
		}
		e.close()
		<-e.ended
		if n := len(server.received); n != 3*60-1 && n != 3*60 {
			t.Errorf("it got %d pings in an hour, want every 20 s", n)
		}
	})
}

// A waiter gets a lock that becomes free while the server process of the connection that listens
// hangs. Another one is delayed once, for a bounded time, and gets a notice when there is another
// connection.
func TestHungListener(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "fsync=off", "max_connections=20")
	s, other := open(t, server.Addr, keysOf(t)), open(t, server.Addr, keysOf(t))
	grant(t, s, "first", time.Minute)
	queue(t, s, "first")
	hung := s.listener()
	if err := syscall.Kill(int(hung.session.pid), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(int(hung.session.pid), syscall.SIGCONT) }) // It may have ended.
	held := grant(t, other, "name", time.Minute)
	grant(t, other, "held on", time.Minute)
	waiter := pgtest.Request("held on", time.Minute)
	asks := asksOf(t, s, waiter.Owner)
	for _, limit := range []time.Duration{2 * maxWaitReady, maxWaitReady / 2} {
		began := time.Now()
		if res := attempt(t, s, waiter); res.Granted || res.Queued || time.Since(began) > limit {
			t.Errorf("Acquire by a waiter beside a connection that hangs: %+v after %v, want neither granted nor queued", res, time.Since(began))
		}
	}
	locks := holdfast.New(newStore(s), nil)
	got := make(chan error, 1)
	go func() {
		_, err := locks.Acquire(context.Background(), "name", nil)
		got <- err
	}()
	pgtest.Eventually(t, "statement without a reply", func() bool { late, _ := hung.session.progress(time.Now()); return late > 0 })
	release(t, other, held)
	freed := time.Now()
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
		t.Logf("the lock lay free for %v", time.Since(freed))
	case <-time.After(pgtest.Bound / 2):
		t.Errorf("the lock lies free after %v", time.Since(freed))
	}
	pgtest.Eventually(t, "another connection", func() bool { second := s.listener(); return second != nil && second != hung })
	pgtest.Signaled(t, asks)
	if res := attempt(t, s, waiter); !res.Queued {
		t.Errorf("Acquire by a waiter on another connection: %+v, want it queued", res)
	}
}

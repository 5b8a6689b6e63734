//go:build unix

package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// A stubServer is the other end of a connection that listens. It grants what it
// is asked for, or takes it in and never answers.
type stubServer struct {
	hangs bool

	mu    sync.Mutex
	asked []string // the names of statements
}

// ear returns a connection of s to the server.
func (b *stubServer) ear(s *AdvisoryStore) *advisoryEar {
	ours, theirs := net.Pipe()
	e := &advisoryEar{
		s:     s,
		on:    &session{conn: ours, front: pgproto3.NewFrontend(ours, ours), heard: s.watcher.wake},
		over:  make(chan struct{}),
		marks: map[string]*mark{},
	}
	e.on.ended = e.ended
	s.watcher.running.Go(e.on.read)
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
			b.asked = append(b.asked, m.PreparedStatement)
			b.mu.Unlock()
		case *pgproto3.Sync:
			if b.hangs {
				continue
			}
			wire.Send(&pgproto3.DataRow{Values: [][]byte{{1}}})
			wire.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			if wire.Flush() != nil {
				return
			}
		}
	}
}

// Whoever watches is kept for a moment only by a connection that does not answer,
// though his context has no end, and that connection is soon replaced.
func TestAdvisorySilentEar(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &AdvisoryStore{}
		listened := make(chan time.Time, 2)
		ctx, cancel := context.WithCancel(t.Context())
		s.watcher.init(ctx, func(context.Context) (ear, error) {
			listened <- time.Now()
			return (&stubServer{hangs: len(listened) == 1}).ear(s), nil
		})
		defer s.watcher.close()
		defer cancel()
		began := time.Now()
		_, err := s.watcher.watch(context.Background(), Key64(1).String())
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > listenBound {
			t.Errorf("a watch that is not answered: %v after %v, want an error within %v", err, time.Since(began), listenBound)
		}
		<-listened
		if took := (<-listened).Sub(began); took > listenBound+2*earLook {
			t.Errorf("a connection that does not answer was replaced after %v", took)
		}
		if _, err := s.watcher.watch(t.Context(), Key64(1).String()); err != nil {
			t.Errorf("a watch on the next one: %v", err)
		}
	})
}

// A connection that is silent because nobody asks it anything is kept.
func TestAdvisoryIdleEar(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &stubServer{}
		e := server.ear(&AdvisoryStore{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		e.hear(ctx)
		if ctx.Err() == nil {
			t.Error("a connection that answers was given up")
		}
		e.close()
		<-e.over
		if n := len(server.asked); n != 3*60-1 && n != 3*60 {
			t.Errorf("it was asked whether it is there %d times in an hour, want every 20 s", n)
		}
	})
}

// A connection that does not answer does not keep a release from being told: it
// is not waited for, and not asked again.
func TestAdvisorySilentTeller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			hangs bool
			takes time.Duration
		}{{false, 0}, {true, tellBound}} {
			server := &stubServer{hangs: c.hangs}
			e := server.ear(&AdvisoryStore{})
			began := time.Now()
			for range 3 {
				if told := e.tell(Key64(1).String()); told == c.hangs {
					t.Errorf("hangs is %v: told is %v", c.hangs, told)
				}
				time.Sleep(time.Nanosecond)
			}
			if took := time.Since(began).Truncate(time.Millisecond); took != c.takes {
				t.Errorf("hangs is %v: three took %v, want %v", c.hangs, took, c.takes)
			}
			e.close()
			<-e.over
		}
	})
}

// A mark ends though nobody could tell the connection, which was still being made
// ready, that the name is not watched any more.
func TestAdvisoryMarkEndsUntold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &AdvisoryStore{}
		s.watcher.init(t.Context(), nil)
		name, signal := Key64(1).String(), make(chan struct{}, 1)
		s.watcher.add(name, signal)
		server := &stubServer{}
		e := server.ear(s)
		if err := e.markAll(t.Context(), s.watcher.watched()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * markLinger)
		synctest.Wait()
		if want := []string{"holdfast_mark"}; !slices.Equal(server.asked, want) {
			t.Errorf("while the name is watched the server was asked for %v, want %v", server.asked, want)
		}
		s.watcher.remove(name, signal)
		time.Sleep(2 * markLinger)
		synctest.Wait()
		if want := []string{"holdfast_mark", "holdfast_unmark"}; !slices.Equal(server.asked, want) || s.marks.Load() != 0 {
			t.Errorf("in the end the server was asked for %v, want %v; %d marks are counted", server.asked, want, s.marks.Load())
		}
		e.close()
		<-e.over
	})
}

// Many names are marked anew about as fast as one, however far away the server is.
func TestAdvisoryManyMarksAfterLoss(t *testing.T) {
	t.Parallel()
	p := faultproxy.Start(t, shared.postgres().Addr)
	s := openAdvisory(t, p.Addr(), keysOf(t))
	s.firstLook = 0
	const names = 200
	for i := range names {
		if _, err := s.Watch(t.Context(), fmt.Sprint("name/", i)); err != nil {
			t.Fatal(err)
		}
	}
	first := listens(s)
	p.Delay(faultproxy.Up, 30*time.Millisecond, 30*time.Millisecond) // One after the other, they would take longer than listenBound.
	began := time.Now()
	first.on.abandon()
	eventually(t, "another connection", func() bool { second := listens(s); return second != nil && second != first })
	t.Logf("it took %v", time.Since(began))
	if n := s.marks.Load(); n != names {
		t.Errorf("on the new connection there are %d marks, want %d", n, names)
	}
}

// listens returns the connection that listens, nil if there is none.
func listens(s *AdvisoryStore) *advisoryEar {
	s.watcher.mu.Lock()
	defer s.watcher.mu.Unlock()
	e, _ := s.watcher.ear().(*advisoryEar)
	return e
}

// The server process behind the connection that listens may hang, and the lock be
// free: whoever waits for it gets it.
func TestAdvisoryHungEar(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t, "fsync=off", "max_connections=20")
	s, other := openAdvisory(t, server.Addr, keysOf(t)), openAdvisory(t, server.Addr, keysOf(t))
	if _, err := s.Watch(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	hung := listens(s)
	if err := syscall.Kill(int(hung.on.pid), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(int(hung.on.pid), syscall.SIGCONT) }) // It may have ended.
	held := advisoryGrant(t, other, "name", time.Minute)
	locks := holdfast.New(s, nil)
	got := make(chan error, 1)
	go func() {
		_, err := locks.Acquire(context.Background(), "name", nil)
		got <- err
	}()
	eventually(t, "question to the connection", func() bool { late, _ := hung.on.progress(time.Now()); return late > 0 })
	advisoryRelease(t, other, held)
	freed := time.Now()
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
		t.Logf("the lock lay free for %v", time.Since(freed))
	case <-time.After(bound / 2):
		t.Errorf("the lock lies free after %v", time.Since(freed))
	}
	eventually(t, "another connection", func() bool { second := listens(s); return second != nil && second != hung })
}

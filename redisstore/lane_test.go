//go:build unix

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// A stuckLane is a lane whose batches each wait for a word of their own.
type stuckLane struct {
	lane
	words [3]chan struct{}

	seen  sync.Mutex
	sizes []int // of the batches so far
}

func newStuckLane() *stuckLane {
	l := &stuckLane{}
	for i := range l.words {
		l.words[i] = make(chan struct{})
	}
	l.exec = func(_ context.Context, batch []*call) {
		l.seen.Lock()
		word := l.words[len(l.sizes)]
		l.sizes = append(l.sizes, len(batch))
		l.seen.Unlock()
		<-word
	}
	return l
}

// batches returns the sizes of the batches so far.
func (l *stuckLane) batches() []int {
	l.seen.Lock()
	defer l.seen.Unlock()
	return slices.Clone(l.sizes)
}

// idle reports whether nobody runs the lane.
func (l *stuckLane) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.run == 0
}

// What comes while a caller carries his own call goes together in the next batch.
func TestLaneGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStuckLane()
		run, alone := l.lead()
		if !alone {
			t.Fatal("an idle lane has a runner")
		}
		go l.carryAlone(context.Background(), run, &call{})
		if _, alone := l.lead(); alone {
			t.Fatal("a lane has two runners")
		}
		later := []*call{{}, {}, {}}
		l.put(later[0])
		l.put(later[1:]...)
		synctest.Wait()
		close(l.words[0])
		synctest.Wait()
		if got := l.batches(); !slices.Equal(got, []int{1, 3}) {
			t.Errorf("the batches are of %d calls, want 1 and 3", got)
		}
		close(l.words[1])
		for _, c := range later {
			<-c.done
		}
		synctest.Wait()
		if !l.idle() {
			t.Error("a lane without calls has a runner")
		}
	})
}

// Callers who are woken together ask again together: theirs is one batch, not
// one for each. On one processor it is certain who runs when.
func TestLaneLetsCallersAskAgain(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const callers, rounds = 16, 50
	batches := 0 // A lane without hung calls carries out one batch at a time.
	l := &lane{exec: func(context.Context, []*call) { batches++ }}
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range rounds {
				c := &call{}
				l.put(c)
				<-c.done
			}
		})
	}
	group.Wait()
	if batches > 4*rounds {
		t.Errorf("%d callers who ask %d times each took %d batches, want about %[2]d", callers, rounds, batches)
	}
}

// A release comes behind the acquire that it undoes, so locks keep to their
// lanes; different ones do not all share one.
func TestLanesOfASingleServer(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close() // Nothing is dialled.
	s := New(client, nil)
	defer s.Close()
	seen := map[*lane]bool{}
	for i := range 100 {
		key := s.lockKey(fmt.Sprint(i))
		first := s.lane(key)
		if again := s.lane(key); again != first {
			t.Fatalf("the lock %q changes its lane", key)
		}
		seen[first] = true
	}
	if len(seen) != singleLanes {
		t.Errorf("100 locks are in %d lanes, want %d", len(seen), singleLanes)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	s.start(over, s.newCall(lookupScript, "name"), func() {})
	for i := range 100 {
		if s.lane(s.lockKey(fmt.Sprint(i))) != &s.lanes[0] {
			t.Fatal("calls are begun, and a lock is in another lane than the first")
		}
	}
}

// A caller carries his call himself only if it ends with his context, and if he
// stays with it until it is certain to be lost or done.
func TestWhoCarriesHisCall(t *testing.T) {
	for _, c := range []struct {
		obeys bool
		in    time.Duration // the deadline, 0 for none
		want  bool
	}{
		{true, 0, true}, {true, time.Hour, true}, {true, 2 * time.Second, true},
		{true, 100 * time.Millisecond, false}, {true, -time.Second, false},
		{false, 0, false}, {false, 2 * time.Second, false},
	} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: c.obeys})
		ctx := t.Context()
		if c.in != 0 {
			limited, cancel := context.WithTimeout(ctx, c.in)
			defer cancel()
			ctx = limited
		}
		if got := New(client, nil).bears(ctx); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		_ = client.Close() // Nothing was dialled.
	}
}

// The release of an attempt that was given up does not overtake it, though it
// may go by another connection: nothing stays locked.
func TestReleaseAfterAnAttemptGivenUp(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	proxy := faultproxy.Start(t, server.Addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true})
	defer client.Close()
	s := New(client, nil)
	defer s.Close()
	release(t, s, grant(t, s, "name", time.Minute)) // The scripts are known.
	for range 20 {
		proxy.Hold(faultproxy.Up)
		req := request("name", time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		if _, err := s.Acquire(ctx, req); err == nil || driver.NotApplied(err) {
			t.Fatalf("Acquire of a server that hangs: %v", err)
		}
		cancel()
		released := make(chan bool)
		go func() {
			ours, err := s.Release(context.Background(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
			released <- ours && err == nil
		}()
		proxy.Pass(faultproxy.Up)
		if !<-released || server.Do("EXISTS", "lock:name") != "0" {
			t.Fatal("a release has overtaken the acquire that it undoes")
		}
	}
}

// The client library would send a release again whose answer was lost, and report
// that nothing was held; that is for package holdfast to do, who knows of the
// first.
func TestClientDoesNotSendAgain(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	for _, alone := range []bool{true, false} {
		d := &faultyDialer{}
		client := redis.NewClient(&redis.Options{Addr: server.Addr, Dialer: d.dial, ContextTimeoutEnabled: alone})
		s := New(client, nil)
		release(t, s, grant(t, s, "name", time.Minute)) // The scripts are known.
		req := grant(t, s, "name", time.Minute)
		d.arm(drivertest.ReplyLost)
		ours, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		if err == nil || driver.NotApplied(err) {
			t.Errorf("a Release whose answer was lost (carried by its caller: %v): %v, %v, want an error that leaves it open", alone, ours, err)
		}
		_ = s.Close() // Nothing is under way.
		_ = client.Close()
	}
}

// A caller who may be cancelled is let go at once when he is, though his client
// library would not notice.
func TestCancelledAtASilentServer(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t)
	proxy := faultproxy.Start(t, server.Addr)
	s := open(t, proxy.Addr(), nil)
	release(t, s, grant(t, s, "name", time.Minute)) // The connection is there.
	proxy.Hold(faultproxy.Down)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(50*time.Millisecond, cancel)
	began := time.Now()
	_, err := s.Acquire(ctx, request("name", time.Minute))
	if took := time.Since(began); !errors.Is(err, context.Canceled) || took >= requestBound {
		t.Errorf("a cancelled Acquire: %v after %v", err, took)
	}
}

package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filestore"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

const queueTime = 10 * time.Second

// listen returns a function that returns how many Ask notices an owner got since the last call.
func listen(t *testing.T, s *Store, owner string) func() int {
	var mu sync.Mutex
	asks := 0
	t.Cleanup(s.Notify(func(n driver.Notice) {
		mu.Lock()
		defer mu.Unlock()
		if n.Kind != driver.Ask || n.Name != name {
			t.Errorf("notice %+v, want Ask for %q", n, name)
		}
		if n.Owner == owner || n.Owner == "" {
			asks++
		}
	}))
	return func() int {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		n := asks
		asks = 0
		return n
	}
}

// queue makes an owner wait for the name, which must be held. All nodes have answered the holder
// before.
func queue(t *testing.T, s *Store, req driver.AcquireRequest) {
	t.Helper()
	synctest.Wait()
	req.Queue = queueTime
	if res := acquire(t, s, req); res.Granted || !res.Queued || res.First {
		t.Fatalf("Acquire for %s, which waits: %+v, want it queued", req.Holder, res)
	}
}

// A release sends a notice at once, whatever a minority does, and not one for each node.
func TestWaiter(t *testing.T) {
	for what, fault := range map[string]func(*server) faultstore.Fault{
		"healthy": func(*server) faultstore.Fault { return nil },
		"dead":    dead,
		"hung":    hung,
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, c cluster) {
				for _, s := range c[:2] {
					s.set(fault(s))
				}
				s, other := c.client(t), c.client(t)
				for range 10 {
					req, mine := request("other"), request("mine")
					asks := listen(t, s, mine.Owner)
					grant(t, other, req)
					queue(t, s, mine)
					asks()
					giveBack(t, other, req)
					if asks() != 1 {
						t.Fatal("a release sent no notice")
					}
					time.Sleep(2 * staleNotice)
					if n := asks(); n > 0 && what == "healthy" || n > 1 {
						t.Errorf("a release sent %d more notices", n)
					}
					giveBack(t, s, mine)
				}
			})
		})
	}
}

// A release that reaches the nodes one after the other sends one notice, when a majority is free.
func TestWaiterAndSlowRelease(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, c cluster) {
		conns := c.connect()
		for i, conn := range conns {
			conn.Set(faultstore.Release, slow(time.Duration(i)*10*time.Millisecond, 0))
		}
		s, other := c.client(t), join(t, conns)
		req, mine := request("other"), request("mine")
		asks := listen(t, s, mine.Owner)
		grant(t, other, req)
		queue(t, s, mine)
		synctest.Wait()
		began := time.Now()
		go giveBackAnyway(t, other, req)
		time.Sleep(20*time.Millisecond - 1)
		if n := asks(); n != 0 {
			t.Errorf("after two of five nodes are free there are %d notices", n)
		}
		time.Sleep(time.Nanosecond)
		if n := asks(); n != 1 {
			t.Errorf("after %v, with three of five nodes free, there are %d notices, want 1", time.Since(began), n)
		}
		time.Sleep(2 * staleNotice)
		if n := asks(); n != 0 {
			t.Errorf("there are %d more notices", n)
		}
	})
}

func TestWaiterIgnoresAMinority(t *testing.T) {
	for _, taken := range []bool{false, true} { // when the waiter comes
		inBubble(t, 3, func(t *testing.T, c cluster) {
			conns := c.connect()
			conns[2].Set(faultstore.Acquire, faultstore.Refuse)
			s, other, third := c.client(t), join(t, conns), c.connect()[2]
			grant(t, other, request("other"))
			alone := request("alone")
			take := func() {
				if res, err := third.Acquire(t.Context(), alone); err != nil || !res.Granted {
					t.Fatal(res, err)
				}
			}
			if taken {
				take()
			}
			mine := request("mine")
			asks := listen(t, s, mine.Owner)
			queue(t, s, mine)
			synctest.Wait()
			for range 20 {
				if !taken {
					take()
				}
				taken = false
				if _, err := third.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: alone.Owner}); err != nil {
					t.Fatal(err)
				}
				if asks() > 0 {
					t.Fatal("the release of an attempt that failed sends a notice")
				}
			}
		})
	}
}

// A node whose vote comes late may have been released before.
func TestWaiterWithALateVote(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		for i, conn := range conns {
			conn.Set(faultstore.Acquire, slow(time.Duration(i)*10*time.Millisecond, 0))
		}
		s, other := join(t, conns), c.client(t)
		req, mine := request("other"), request("mine")
		asks := listen(t, s, mine.Owner)
		grant(t, other, req)
		queue(t, s, mine)
		// The release reaches node 3 before the vote does, and node 1 after.
		slowly := join(t, func() []*conn {
			conns := c.connect()
			conns[0].Set(faultstore.Release, slow(20*time.Millisecond, 0))
			conns[1].Set(faultstore.Release, faultstore.Refuse)
			return conns
		}())
		giveBackAnyway(t, slowly, req)
		time.Sleep(50 * time.Millisecond)
		if asks() == 0 {
			t.Error("a release sent no notice")
		}
	})
}

func giveBackAnyway(t *testing.T, s *Store, req driver.AcquireRequest) {
	t.Helper()
	if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil {
		t.Error(err)
	}
}

// A node may send its notice before its vote: here the second one, which requests notices.
func TestNoticeBeforeTheVote(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		for _, conn := range conns {
			conn.Set(faultstore.Acquire, slow(0, 20*time.Millisecond))
		}
		s, other := join(t, conns), c.client(t)
		req, mine := request("other"), request("mine")
		asks := listen(t, s, mine.Owner)
		grant(t, other, req)
		time.AfterFunc(30*time.Millisecond, func() { giveBackAnyway(t, other, req) })
		queue(t, s, mine)
		if asks() == 0 {
			t.Error("a release before the votes sent no notice")
		}
	})
}

// The votes of a waiter request the notices of the nodes: there is no other request but the first
// vote, and no place. The wait is prolonged by each attempt, and ends with a grant, a Release, or
// Queue.
func TestCostOfQuorumWaiter(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		s, other := join(t, conns), c.client(t)
		left := func() int {
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.waiters) + len(s.owners)
		}
		free := request("mine")
		free.Queue = queueTime
		grant(t, s, free)
		if n := left(); n != 0 {
			t.Errorf("a grant leaves %d waiters", n)
		}
		giveBack(t, s, free)

		req, mine := request("other"), request("mine")
		req.TTL = time.Hour
		asks := listen(t, s, mine.Owner)
		grant(t, other, req)
		const attempts = 4
		before := conns[0].Calls(faultstore.Acquire)
		for range attempts {
			queue(t, s, mine)
			time.Sleep(queueTime - time.Millisecond)
		}
		if n := conns[0].Calls(faultstore.Acquire) - before; n != 1+attempts {
			t.Errorf("%d attempts cost %d requests", attempts, n)
		}
		for _, server := range c {
			if rec, _, err := server.memory().Lookup(t.Context(), name); err != nil || rec.Waiting != 0 {
				t.Errorf("a node has %d places, %v", rec.Waiting, err)
			}
		}
		giveBack(t, other, req)
		if asks() != 1 {
			t.Error("a release within Queue of the last attempt sent no notice")
		}
		mine.Queue = queueTime
		grant(t, s, mine)
		if n := left(); n != 0 {
			t.Errorf("a grant leaves %d waiters", n)
		}
		giveBack(t, s, mine)

		for _, end := range []func(){
			func() { time.Sleep(queueTime) },
			func() { giveBack(t, s, mine) },
		} {
			grant(t, other, req)
			queue(t, s, mine)
			end()
			if n := left(); n != 0 {
				t.Errorf("%d waiters are left", n)
			}
			giveBack(t, other, req)
			if asks() != 0 {
				t.Error("a release after the end of a wait sent a notice")
			}
		}
	})
}

// Each owner gets its notices. A node that may have missed some counts as one that has sent one.
func TestWaitersOfOneStore(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s, other := c.client(t), c.client(t)
		held := request("other")
		grant(t, other, held)
		var asks []func() int
		for i := range 3 {
			req := request(fmt.Sprint("mine ", i))
			asks = append(asks, listen(t, s, req.Owner))
			queue(t, s, req)
		}
		synctest.Wait()
		check := func(what string, want int) {
			t.Helper()
			for i, asks := range asks {
				if n := asks(); n != want {
					t.Errorf("%s: owner %d got %d notices, want %d", what, i, n, want)
				}
			}
		}
		check("before", 0)
		c[0].notices.Send(driver.Notice{Kind: driver.Ask})
		check("a node that may have missed notices", 0)
		c[1].notices.Send(driver.Notice{Kind: driver.Ask})
		check("two such nodes", 1)
		for _, server := range c {
			server.notices.Send(driver.Notice{Kind: driver.Lost, Name: name})
		}
		check("losses of nodes", 0)
		time.Sleep(2 * staleNotice)
		giveBack(t, other, held)
		check("a release", 1)
	})
}

// Without a majority of nodes that send notices no request is queued.
func TestSilentNodes(t *testing.T) {
	for silent := range 3 {
		inBubble(t, 3, func(t *testing.T, c cluster) {
			conns := c.connect()
			for _, conn := range conns[:silent] {
				conn.Silent()
			}
			s, other := join(t, conns), c.client(t)
			grant(t, other, request("other"))
			req := request("mine")
			req.Queue = queueTime
			acquire(t, s, req)
			synctest.Wait() // All nodes have answered now.
			if res := acquire(t, s, req); res.Granted || res.Queued != (silent < 2) {
				t.Errorf("with %d of 3 nodes that send no notices: %+v", silent, res)
			}
		})
	}
}

// A claim without a place takes nothing: its owner gets notices alone. What needs a queue or
// several holders is refused.
func TestClaim(t *testing.T) {
	for _, size := range []int{1, 3} {
		inBubble(t, size, func(t *testing.T, c cluster) {
			s, other := c.client(t), c.client(t)
			held := request("other")
			for _, free := range []bool{true, false} {
				if !free {
					grant(t, other, held)
				}
				req := request("mine")
				req.Claim, req.NoPlace = true, true
				asks := listen(t, s, req.Owner)
				queue(t, s, req)
				if free {
					grant(t, other, held)
				}
				giveBack(t, other, held)
				if asks() == 0 {
					t.Error("a release sent no notice")
				}
			}
			for _, change := range []func(req *driver.AcquireRequest){
				func(req *driver.AcquireRequest) { req.Claim = true },
				func(req *driver.AcquireRequest) { req.Limit = 1 },
				func(req *driver.AcquireRequest) { req.Weight = 1 },
			} {
				req := request("mine")
				change(&req)
				if res, err := s.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnsupported) {
					t.Errorf("Acquire with %+v: %+v, %v, want ErrUnsupported", req, res, err)
				}
			}
		})
	}
}

// After Close there are no notices, also not of nodes that go on.
func TestNoNoticeAfterClose(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s, other := New(stores(c.connect()), nil), c.client(t)
		req, mine := request("other"), request("mine")
		asks := listen(t, s, mine.Owner)
		grant(t, other, req)
		queue(t, s, mine)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		giveBack(t, other, req)
		if n := asks(); n != 0 {
			t.Errorf("%d notices after Close", n)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.waiters); n != 0 {
			t.Errorf("%d waiters after Close", n)
		}
	})
}

// What a majority has answered counts, also if the second vote, for notices, has no time: at the
// deadline, while a node that hangs has its grace, and after a cancellation.
func TestRefusalWithoutASecondVote(t *testing.T) {
	roundTrip := slow(10*time.Millisecond, 10*time.Millisecond)
	for what, test := range map[string]struct {
		third func(s *server) faultstore.Fault
		waits bool // already
		end   time.Duration
		stop  func(context.Context) (context.Context, context.CancelFunc)
	}{
		"deadline": {func(*server) faultstore.Fault { return roundTrip }, false, 20 * time.Millisecond, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 35*time.Millisecond)
		}},
		"grace": {func(s *server) faultstore.Fault { return s.hang }, true, 30 * time.Millisecond, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 30*time.Millisecond)
		}},
		"cancellation": {func(*server) faultstore.Fault { return roundTrip }, false, 20 * time.Millisecond, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(10*time.Millisecond, cancel)
			return ctx, cancel
		}},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c cluster) {
				conns := c.connect()
				for _, conn := range conns[:2] {
					conn.Set(faultstore.Acquire, roundTrip)
				}
				s, other, mine := join(t, conns), c.client(t), request("mine")
				grant(t, other, request("other"))
				c[2].set(test.third(c[2]))
				if test.waits {
					queue(t, s, mine)
				}
				ctx, cancel := test.stop(t.Context())
				defer cancel()
				mine.Queue = queueTime
				began := time.Now()
				res, err := s.Acquire(ctx, mine)
				if took := time.Since(began); err != nil || res.Granted || res.Held.Holder != "other" || took != test.end {
					t.Errorf("after %v: %+v, %v, want it held by other after %v", took, res, err, test.end)
				}
			})
		})
	}
}

// An owner whose votes have no winner waits, too.
func TestWaiterOfASplitVote(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c cluster) {
		for i, conn := range c.connect() {
			if res, err := conn.Acquire(t.Context(), request(fmt.Sprint("other ", i/2))); err != nil || !res.Granted {
				t.Fatal(res, err)
			}
		}
		queue(t, c.client(t), request("mine"))
	})
}

// A claim requests the notices of nodes that keep no order, as WaitFree does.
func TestClaimOfFiles(t *testing.T) {
	var nodes []driver.Store
	for range 3 {
		node, err := filestore.New(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, node)
	}
	s := New(nodes, &Options{CloseStores: true})
	defer s.Close()
	grant(t, s, request("other"))
	claim := request("mine")
	claim.Queue, claim.NoPlace, claim.Claim = queueTime, true, true
	if res := acquire(t, s, claim); res.Granted || !res.Queued {
		t.Errorf("a claim of a held name: %+v, want it queued", res)
	}
}

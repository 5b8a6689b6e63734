package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// Nodes that all hang leave an acquisition open that had no answer: nothing is Lost without
// replies, and a waiting call returns after MaxOutage.
func TestSilenceIsNotLost(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s := c.client(t)
		for _, server := range c {
			server.set(server.hang)
		}
		req := request("mine")
		if res, err := s.Acquire(t.Context(), req); err == nil {
			t.Fatalf("without a reply: %+v", res)
		}
		entries, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: req.TTL}})
		if err == nil || entries[0].State != driver.Unknown {
			t.Errorf("Renew is answered %v, %v", entries, err)
		}
		client := holdfast.New(c.client(t), nil)
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		d := took(func() { _, err = client.Acquire(ctx, "other", nil) })
		if !errors.Is(err, holdfast.ErrUnavailable) || d > 10*time.Minute {
			t.Errorf("after %v: %v", d, err)
		}
	})
}

// A Release with Keep of an owner that another Store has acquired keeps the name, also if a renewal
// under way finds half of the hold gone.
func TestKeepOvertakesARenewal(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c cluster) {
		req := request("mine")
		grant(t, c.client(t), req)
		conns := c.connect()
		s := join(t, conns)
		for i, conn := range conns {
			conn.Once(faultstore.Renew, slow(50*time.Millisecond, 0))
			if i >= 2 {
				conn.Once(faultstore.Release, slow(100*time.Millisecond, 0))
			}
		}
		renewed := make(chan driver.State)
		go func() { renewed <- renew(t, s, req) }()
		synctest.Wait()
		kept, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner, Keep: time.Minute})
		if !kept || err != nil {
			t.Errorf("Release: %v, %v", kept, err)
		}
		if got := <-renewed; got != driver.Lost {
			t.Errorf("the renewal is answered %v, want lost", got)
		}
		time.Sleep(time.Second)
		for i, server := range c {
			if records, _ := server.memory().Lookup(t.Context(), name); len(records) != 1 || !records[0].Kept {
				t.Errorf("node %d has %v", i, records)
			}
		}
	})
}

// A renewal that a majority has confirmed is answered Lost if the undoing of its Acquire has begun
// before the answer.
func TestRenewalMeetsAnUndo(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		s := join(t, conns)
		for i, conn := range conns {
			conn.Set(faultstore.Acquire, slow(0, time.Duration(80+20*i)*time.Millisecond))
			conn.Set(faultstore.Renew, slow(0, 100*time.Millisecond))
			conn.Set(faultstore.Release, slow(time.Second, 0))
		}
		req := request("mine")
		req.TTL = 100 * time.Millisecond // It is granted too late.
		renewed := make(chan driver.State)
		go func() {
			time.Sleep(50 * time.Millisecond)
			long := req
			long.TTL = time.Minute
			renewed <- renew(t, s, long)
		}()
		if res, err := s.Acquire(t.Context(), req); err == nil {
			t.Fatalf("%+v", res)
		}
		if got := <-renewed; got != driver.Lost {
			t.Errorf("the renewal is answered %v", got)
		}
	})
}

// An Acquire that a renewal has found lost while it was under way is not granted: the release has
// begun.
func TestAcquireMeetsALostRenewal(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		s := join(t, conns)
		for _, conn := range conns {
			conn.Set(faultstore.Acquire, slow(100*time.Millisecond, 0))
		}
		req := request("mine")
		renewed := make(chan driver.State)
		go func() {
			time.Sleep(50 * time.Millisecond)
			renewed <- renew(t, s, req)
		}()
		res, err := s.Acquire(t.Context(), req)
		if got := <-renewed; got == driver.Lost && (res.Granted || err == nil) {
			t.Errorf("after Lost: %+v, %v", res, err)
		}
		time.Sleep(time.Second)
		c.holders(t, "", "", "")
	})
}

// A request with a Place is answered with the hold of a rival when rivals have so many nodes that
// the others are no majority. It is not when dead nodes are a part of the reason, and a single
// attempt is not.
func TestDividedVoteIsHeldForAWaiter(t *testing.T) {
	for _, test := range []struct {
		rivals, dead int
		waits, held  bool
	}{
		{2, 0, true, true}, {3, 0, true, true}, {1, 1, true, false}, {2, 1, true, true}, {2, 0, false, false},
	} {
		inBubble(t, 3, func(t *testing.T, c cluster) {
			for i, conn := range c.connect()[:test.rivals] {
				rival := request(fmt.Sprint("rival ", i))
				if _, err := conn.Acquire(t.Context(), rival); err != nil {
					t.Fatal(err)
				}
			}
			if test.dead > 0 {
				c[2].set(faultstore.Refuse)
			}
			req := request("mine")
			if test.waits {
				req.Place = time.Second
			}
			res, err := c.client(t).Acquire(t.Context(), req)
			var again *driver.RetryError
			if held := err == nil && !res.Granted; held != test.held || !held && !errors.As(err, &again) {
				t.Errorf("%+v: %+v, %v", test, res, err)
			}
			if left := res.Held.Remaining; test.held && (left <= 0 || left > longPause || res.Held.Holder == "") {
				t.Errorf("%+v: %+v", test, res)
			}
		})
	}
}

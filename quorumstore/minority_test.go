package quorumstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

const there, back = 3 * time.Millisecond, 4 * time.Millisecond

// With a majority hung, every operation ends within the Timeout, whatever the
// nodes do with the context, and the error is an Error.
func TestMajorityHungIsAnErrorInTime(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s := c.client(t)
		req := request("mine")
		grant(t, s, req)
		c[0].set(c[0].hang)
		c[1].set(c[1].hang)
		other := request("other")
		for what, call := range map[string]func() error{
			"Acquire": func() error { _, err := s.Acquire(t.Context(), other); return err },
			"Renew": func() error {
				_, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: name, Owner: req.Owner, TTL: req.TTL}})
				return err
			},
			"Release": func() error {
				_, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: other.Owner})
				return err
			},
			"Lookup": func() error { _, err := s.Lookup(t.Context(), name); return err },
			"Break":  func() error { _, err := s.Break(t.Context(), name, 0); return err },
		} {
			var err error
			d := took(func() { err = call() })
			var votes *Error
			if !errors.As(err, &votes) || len(votes.Votes) != 3 || votes.Need != 2 {
				t.Errorf("%s: %v, want an Error", what, err)
			}
			if driver.IsNotApplied(err) {
				t.Errorf("%s: %v: it may have been applied", what, err)
			}
			if d > DefaultTimeout {
				t.Errorf("%s took %v", what, d)
			}
		}
	})
}

// A grant that comes after an attempt has failed is given back.
func TestLateGrantOfAFailedAttemptIsGivenBack(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		first, second := c.client(t), c.client(t)
		c[2].set(faultstore.Refuse)
		grant(t, first, request("first"))
		synctest.Wait()
		c[0].set(slow(there, back))
		c[1].set(slow(there, back))
		c[2].set(slow(100*time.Millisecond, 100*time.Millisecond))
		if res := acquire(t, second, request("second")); res.Granted || res.Held.Holder != "first" {
			t.Fatalf("a held name: %+v", res)
		}
		time.Sleep(150 * time.Millisecond)
		c.holders(t, "first", "first", "second")
		time.Sleep(time.Second)
		c.holders(t, "first", "first", "")
	})
}

// What a failed attempt was granted is given back before the answer.
func TestPartialWinsAreReleasedBeforeTheAnswer(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		first, second := c.client(t), c.client(t)
		c[2].set(faultstore.Refuse)
		grant(t, first, request("first"))
		synctest.Wait()
		c[0].set(slow(there, back))
		c[1].set(slow(there, back))
		c[2].set(nil)
		acquire(t, second, request("second"))
		c.holders(t, "first", "first", "")

		for _, s := range c[:2] {
			s.set(func(context.Context, faultstore.Op, func()) error {
				time.Sleep(there)
				return faultstore.ErrRefused
			})
		}
		if _, err := second.Acquire(t.Context(), request("second")); err == nil {
			t.Error("one node of three was enough")
		}
		c.holders(t, "first", "first", "")
	})
}

// A release that a node has missed is sent again.
func TestReleaseIsRepeated(t *testing.T) {
	for deaf := range 3 {
		inBubble(t, 3, func(t *testing.T, c cluster) {
			conns := c.connect()
			s := join(t, conns)
			req := request("mine")
			grant(t, s, req)
			synctest.Wait()
			conns[deaf].Once(faultstore.Release, faultstore.Refuse)
			giveBack(t, s, req)
			synctest.Wait()
			want := []string{"", "", ""}
			want[deaf] = "mine"
			c.holders(t, want...)
			time.Sleep(time.Second)
			c.holders(t, "", "", "")
		})
	}
}

// However long a node hangs and ignores contexts, what is kept for it is
// bounded; when it comes back all of that goes.
func TestHungNodeIsBounded(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		revived := make(chan struct{})
		c[0].set(slowUntil(revived))
		s := c.client(t)
		for i := range 5000 {
			req := request("mine")
			req.TTL = time.Second
			grant(t, s, req)
			giveBack(t, s, req)
			if i%100 == 0 {
				time.Sleep(100 * time.Millisecond)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := s.nodes[0].pending.Load(); n > 4*silentLimit {
			t.Errorf("%d goroutines wait for a node that hangs", n)
		}
		if n := s.entryCount(); n > 4*silentLimit {
			t.Errorf("%d owners are kept for a node that hangs", n)
		}
		close(revived)
		time.Sleep(time.Minute)
		if n := s.nodes[0].pending.Load(); n != 0 {
			t.Errorf("%d goroutines are left", n)
		}
		if n := s.entryCount(); n != 0 {
			t.Errorf("%d owners are left", n)
		}
		c.holders(t, "", "", "")
	})
}

func (s *Store) entryCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

package quorumstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

const there, back = 3 * time.Millisecond, 4 * time.Millisecond

// Replies that come late, and decide nothing, leave the end of the wait where it is.
func TestLateRepliesDoNotPutOffTheEnd(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		s := join(t, conns)
		for _, conn := range conns[:2] {
			conn.Set(faultstore.Acquire, func(context.Context, faultstore.Op, func()) error {
				time.Sleep(s.timeout * 9 / 10)
				return driver.NotApplied(errors.New("down"))
			})
		}
		conns[2].Set(faultstore.Acquire, faultstore.Hang)
		var err error
		if d := took(func() { _, err = s.Acquire(t.Context(), request("mine")) }); d > s.timeout || err == nil {
			t.Errorf("Acquire: %v after %v", err, d)
		}
	})
}

// With a majority hung, every operation ends within the Timeout, whatever the nodes do with the
// context, and the error has the reply of each node. An attempt without an answer is not Lost.
func TestMajorityHungIsAnErrorInTime(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		s := c.client(t)
		req := request("mine")
		grant(t, s, req)
		c[0].set(c[0].hang)
		c[1].set(c[1].hang)
		open := request("open")
		if res, err := s.Acquire(t.Context(), open); err == nil {
			t.Fatalf("by one node: %+v", res)
		}
		entries, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: name, Owner: open.Owner, TTL: open.TTL}})
		if err == nil || entries[0].State != driver.Unknown {
			t.Errorf("Renew of an attempt without an answer: %v, %v", entries, err)
		}
		calls := storecheck.Calls(s, request("other"))
		calls["Renew"] = storecheck.Calls(s, req)["Renew"]
		delete(calls, "List") // A list may take longer.
		for what, call := range calls {
			var err error
			d := took(func() { err = call(t.Context()) })
			var votes *majorityError
			if !errors.As(err, &votes) || strings.Count(err.Error(), "; node ") != 3 {
				t.Errorf("%s: %v, want one with the reply of each node", what, err)
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

// However long a node hangs, what is kept for it is bounded; when it comes back all of that goes,
// and it gets as many requests at once as there may be.
func TestHungNodeIsBounded(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		revived := make(chan struct{})
		c[0].set(func(ctx context.Context, _ faultstore.Op, apply func()) error {
			select {
			case <-revived:
				apply()
				return nil
			case <-ctx.Done():
				go func() { <-revived; apply() }()
				return ctx.Err()
			}
		})
		s := c.client(t)
		for i := range 5000 {
			req := request("mine")
			grant(t, s, req)
			giveBack(t, s, req)
			if i%100 == 0 {
				time.Sleep(100 * time.Millisecond)
			}
		}
		if n := s.nodes[0].pending.Load(); n > 4*pendingLimit {
			t.Errorf("%d requests are pending for a node that hangs", n)
		}
		if n := s.entryCount(); n > 4*pendingLimit {
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
		var group sync.WaitGroup
		for i := range 4 * pendingLimit {
			group.Go(func() {
				req := request("mine")
				req.Name = fmt.Sprint("one of many ", i)
				if res, err := s.Acquire(t.Context(), req); err != nil || !res.Granted {
					t.Errorf("Acquire: %+v, %v", res, err)
				}
			})
		}
		group.Wait()
	})
}

func (s *Store) entryCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// One node that hangs and one that is dead, of five, cost nothing: each operation takes one round
// trip.
func TestMinorityCostsNothing(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, c cluster) {
		for _, s := range c {
			s.set(slow(there, back))
		}
		c[1].set(c[1].hang)
		c[3].set(faultstore.Refuse)
		s := c.client(t)
		mine, other := storecheck.Calls(s, request("mine")), storecheck.Calls(s, request("other"))
		for i, call := range []func(context.Context) error{mine["Acquire"], other["Acquire"], mine["Renew"], mine["Lookup"], mine["List"], mine["Release"]} {
			var err error
			if d := took(func() { err = call(t.Context()) }); err != nil || d != there+back {
				t.Errorf("call %d took %v, want one round trip of %v: %v", i, d, there+back, err)
			}
		}
	})
}

// A release that keeps the name and is sent again to a node, since it or its reply was lost, keeps
// it there until the same moment, and not from then on.
func TestKeepOverAResend(t *testing.T) {
	for what, fault := range map[string]faultstore.Fault{"request": faultstore.Refuse, "reply": faultstore.LoseReply} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c cluster) {
				conns := c.connect()
				s := join(t, conns)
				req := request("mine")
				grant(t, s, req)
				synctest.Wait()
				conns[1].Once(faultstore.Release, fault)
				const keep = 5 * time.Second
				if ended, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: req.Owner, Keep: keep}); err != nil || !ended {
					t.Fatalf("Release: %v, %v", ended, err)
				}
				time.Sleep(keep - time.Millisecond)
				if conns[1].Calls(faultstore.Release) < 2 {
					t.Error("the release was not sent again")
				}
				for i, server := range c {
					if records := server.records(); len(records) != 1 || !records[0].Kept || records[0].Remaining > time.Millisecond {
						t.Errorf("server %d has %v", i, records)
					}
				}
				if res := acquire(t, s, request("early")); res.Granted || !res.Held.Kept {
					t.Errorf("a name that is kept: %+v", res)
				}
				time.Sleep(2 * time.Millisecond)
				grant(t, s, request("next"))
			})
		})
	}
}

// Nodes outside the majority that has agreed on the token may have granted another one. They are no
// part of the hold, neither for its owner nor for those that look.
func TestMinorityWithAnotherToken(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, c cluster) {
		c[3].step(5 * time.Second)
		c[4].step(9 * time.Second)
		s := c.client(t)
		req := request("mine")
		token := grant(t, s, req)
		synctest.Wait()
		for i, server := range c {
			if records := server.records(); len(records) != 1 || (records[0].Token == token) != (i < 3) {
				t.Fatalf("server %d has %v: want token %d on the first three alone", i, records, token)
			}
		}
		for _, want := range []driver.State{driver.Held, driver.Lost} {
			found, err := s.Lookup(t.Context(), name)
			if err != nil || (len(found) == 1) != (want == driver.Held) {
				t.Errorf("Lookup of a hold that is %v: %v, %v", want, found, err)
			}
			if got := renew(t, s, req); got != want {
				t.Errorf("Renew: %v, want %v", got, want)
			}
			c[0].restart()
		}
		synctest.Wait()
		c.holders(t, "", "", "", "", "")
	})
}

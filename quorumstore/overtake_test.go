package quorumstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// A release is sent to a node once that has answered the acquisition that it
// undoes: not before, however late that is, and whatever the replies to other
// attempts meanwhile.
func TestReleaseFollowsItsAcquire(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		const node = 0
		conns := c.connect()
		var sent atomic.Int64
		conns[node].Set(faultstore.Release, func(ctx context.Context, _ faultstore.Op, apply func()) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			sent.Add(1)
			apply()
			return nil
		})
		s := join(t, conns)
		cycle := func(holder string, there, back time.Duration) {
			conns[node].Set(faultstore.Acquire, slow(there, back))
			req := request(holder)
			grant(t, s, req)
			giveBack(t, s, req)
			synctest.Wait() // The request to the slow node has met with its fault.
		}
		began := time.Now()
		cycle("first", 3*time.Second, 2*time.Second)
		cycle("second", time.Second, time.Second) // overtakes the first
		for _, want := range []struct {
			after    time.Duration
			holder   string
			releases int64
		}{
			{0, "", 0},
			{1500 * time.Millisecond, "second", 0},
			{2500 * time.Millisecond, "", 1},
			{3500 * time.Millisecond, "first", 1},
			{5500 * time.Millisecond, "", 2},
			{10 * time.Second, "", 2},
		} {
			time.Sleep(time.Until(began.Add(want.after)))
			holder, releases := c[node].holder(), sent.Load()
			if holder != want.holder || releases != want.releases {
				t.Errorf("after %v: holder %q, %d releases sent; want %q, %d", want.after, holder, releases, want.holder, want.releases)
			}
		}
	})
}

// A Release with Keep reports the hold that it ends, and keeps the name, also if a renewal under
// way finds it gone. The renewal is answered Lost.
func TestReleaseOvertakesARenewal(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, c cluster) {
		conns := c.connect()
		s := join(t, conns)
		req := request("mine")
		grant(t, s, req)
		synctest.Wait()
		for i, conn := range conns {
			conn.Once(faultstore.Renew, slow(50*time.Millisecond, 0))
			if i > 0 {
				conn.Once(faultstore.Release, slow(100*time.Millisecond, 0)) // after the renewal
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
			if records := server.records(); len(records) != 1 || !records[0].Kept {
				t.Errorf("node %d has %v", i, records)
			}
		}
	})
}

// An acquisition that a node executes late, when its owner has given up and others have followed,
// ends nothing but its own: neither it nor the release that undoes it touches the hold of another
// owner.
func TestLateAcquisitionEndsNothingElse(t *testing.T) {
	for _, free := range []bool{false, true} { // whether the name is free at that node then
		t.Run(fmt.Sprint("free ", free), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c cluster) {
				conns := c.connect()
				s := join(t, conns)
				late := request("late")
				const delay = 3 * time.Second
				conns[0].Once(faultstore.Acquire, func(ctx context.Context, _ faultstore.Op, apply func()) error {
					time.AfterFunc(delay, apply)
					<-ctx.Done()
					return ctx.Err()
				})
				grant(t, s, late)
				if !giveBack(t, s, late) {
					t.Error("Release reports no hold")
				}
				time.Sleep(2 * time.Second) // The node has not answered, and gets releases.
				if free {
					conns[0].Set(faultstore.Acquire, faultstore.Refuse)
				}
				next := request("next")
				grant(t, s, next)
				time.Sleep(delay - 2*time.Second + time.Millisecond)
				if free {
					c.holders(t, "late", "next", "next")
				}
				time.Sleep(5 * time.Second)
				if got := renew(t, s, next); got != driver.Held {
					t.Errorf("Renew of the next owner is answered %v", got)
				}
				if free {
					c.holders(t, "", "next", "next")
				} else {
					c.holders(t, "next", "next", "next")
				}
				if !giveBack(t, s, next) {
					t.Error("Release of the next owner reports no hold")
				}
				synctest.Wait()
				c.holders(t, "", "", "")
			})
		})
	}
}

package quorumstore

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultstore"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// An owner that acquires and releases a name again and again while a node hangs has no more than a
// request in flight there, a release behind it, and its last acquisition. When the node is back,
// the acquisition is not sent if its time is over, and nothing is left.
func TestQueueOfAHungNodeIsBounded(t *testing.T) {
	for _, stays := range []bool{false, true} {
		inBubble(t, 3, func(t *testing.T, c cluster) {
			revived := make(chan struct{})
			conns := c.connect()
			conns[2].Set(faultstore.Acquire, slowUntil(revived))
			s := join(t, conns)
			req := request("mine")
			for range 50 {
				grant(t, s, req)
				grant(t, s, req)
				giveBack(t, s, req)
				time.Sleep(DefaultTimeout / 4)
			}
			if stays {
				grant(t, s, req)
				time.Sleep(3 * DefaultTimeout)
			}
			if n := s.nodes[2].pending.Load(); n > 3 {
				t.Errorf("%d requests of one owner wait for a hung node", n)
			}
			close(revived)
			time.Sleep(time.Second)
			synctest.Wait()
			if n := conns[2].Calls(faultstore.Acquire); n != 1 {
				t.Errorf("%d acquisitions were sent, want the one that hung", n)
			}
			if stays {
				c.holders(t, "mine", "mine", "")
				giveBack(t, s, req)
			}
			synctest.Wait()
			c.holders(t, "", "", "")
			if n := len(s.owners); n != 0 || s.nodes[2].pending.Load() != 0 {
				t.Errorf("%d owners, %d requests are left", n, s.nodes[2].pending.Load())
			}
		})
	}
}

// A release that is sent again does not end what the owner has been granted since.
func TestResendDoesNotEndALaterHold(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		s := join(t, conns)
		req := request("mine")
		for i, pause := range []time.Duration{0, resendAfter[0] / 2, resendAfter[0] * 2} {
			grant(t, s, req)
			synctest.Wait()
			conns[2].Set(faultstore.Release, faultstore.Refuse)
			giveBack(t, s, req)
			time.Sleep(pause)
			conns[2].Set(faultstore.Release, nil)
			grant(t, s, req)
			time.Sleep(5 * time.Second)
			c.holders(t, "mine", "mine", "mine")
			if sent := conns[2].Calls(faultstore.Release); i == 0 && sent != 1 {
				t.Errorf("%d releases were sent", sent)
			}
			giveBack(t, s, req)
			synctest.Wait()
			c.holders(t, "", "", "")
		}
	})
}

// An acquisition that was given up at its deadline, and that the server executes after the release,
// does not keep the name: the release that has found nothing is sent again.
func TestAcquisitionAfterItsRelease(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		for _, late := range conns[1:] {
			late.Once(faultstore.Acquire, func(ctx context.Context, _ faultstore.Op, apply func()) error {
				time.AfterFunc(2*DefaultTimeout+200*time.Millisecond, apply)
				<-ctx.Done()
				return ctx.Err()
			})
		}
		s := join(t, conns)
		began := time.Now()
		if res, err := s.Acquire(t.Context(), request("mine")); err == nil {
			t.Fatalf("one node was enough: %+v", res)
		}
		at := func(after time.Duration, want ...string) {
			time.Sleep(time.Until(began.Add(2*DefaultTimeout + after)))
			c.holders(t, want...)
		}
		at(100*time.Millisecond, "", "", "")
		at(220*time.Millisecond, "", "mine", "mine")
		at(resendAfter[0]+resendAfter[1], "", "", "")
	})
}

// The last release decides how long the name is kept, if it joins one that waits, and if one before
// it is sent again.
func TestLastReleaseDecidesKeep(t *testing.T) {
	for _, joins := range []bool{true, false} {
		inBubble(t, 3, func(t *testing.T, c cluster) {
			conns := c.connect()
			s := join(t, conns)
			req := request("mine")
			grant(t, s, req)
			synctest.Wait()
			for _, node := range conns[1:] { // A first release is lost there.
				node.Once(faultstore.Release, func(context.Context, faultstore.Op, func()) error {
					if joins {
						time.Sleep(DefaultTimeout)
					}
					return errFault
				})
			}
			var keeping sync.WaitGroup
			for _, keep := range []time.Duration{time.Second, time.Second, time.Hour} {
				keeping.Go(func() {
					_, _ = s.Release(t.Context(), olddriver.ReleaseRequest{Name: name, Owner: req.Owner, Keep: keep})
				})
				synctest.Wait()
			}
			keeping.Wait()
			time.Sleep(10 * time.Second)
			if res := acquire(t, s, request("other")); res.Granted || !res.Held.Kept || res.Held.Remaining < time.Minute {
				t.Errorf("joins: %v: %+v, want the name kept for an hour", joins, res)
			}
		})
	}
}

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

// Close closes the nodes if, and only if, CloseStores is set, and waits for what
// has to be given back.
func TestClose(t *testing.T) {
	for _, owns := range []bool{false, true} {
		inBubble(t, 3, func(t *testing.T, c cluster) {
			conns := c.connect()
			s := New(stores(conns), &Options{CloseStores: owns})
			c[2].set(slow(20*time.Millisecond, 20*time.Millisecond))
			req := request("mine")
			grant(t, s, req)
			time.Sleep(time.Second)
			c.holders(t, "mine", "mine", "mine")
			giveBack(t, s, req)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			c.holders(t, "", "", "")
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if _, _, err := conns[0].Lookup(t.Context(), name); errors.Is(err, driver.ErrClosed) != owns {
				t.Errorf("with CloseStores %v a node says %v", owns, err)
			}
		})
	}
}

// An attempt that Close cuts short leaves nothing behind, even if the nodes have
// granted it at that moment and are closed at once.
func TestCloseWaitsForAttempts(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		for range 200 {
			s := New(stores(c.connect()), &Options{CloseStores: true})
			for _, server := range c {
				server.set(slow(there, back))
			}
			req := request("mine")
			answered := make(chan error, 1)
			go func() {
				_, err := s.Acquire(context.Background(), req)
				answered <- err
			}()
			time.Sleep(there + back)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if <-answered != nil {
				c.holders(t, "", "", "")
			}
			for _, server := range c {
				server.set(nil)
			}
			giveBack(t, c.client(t), req)
		}
	})
}

// What a minority that hangs still owes does not hold up Close: not at all if it
// did not answer before, else for a small part of the Timeout, and for a very small
// one if it has never answered.
func TestCloseLeavesAHungMinority(t *testing.T) {
	for what, c := range map[string]struct {
		proven bool
		before time.Duration // for how long it has hung
		most   time.Duration
	}{
		"hung just now":          {true, 0, DefaultTimeout / knownNodeShare},
		"hung for a while":       {true, 3 * DefaultTimeout, 0},
		"never answered":         {false, 0, DefaultTimeout / unknownNodeShare},
		"never, and for a while": {false, 3 * DefaultTimeout, 0},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, servers cluster) {
				s := servers.client(t)
				if c.proven {
					if _, _, err := s.Lookup(t.Context(), name); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				servers[0].set(servers[0].hang)
				servers[1].set(servers[1].hang)
				req := request("mine")
				grant(t, s, req)
				time.Sleep(c.before)
				giveBack(t, s, req)
				if d := took(func() { s.Close() }); d > c.most {
					t.Errorf("Close took %v, want %v", d, c.most)
				}
				servers.holders(t, "", "", "", "", "")
			})
		})
	}
}

// Close waits for a majority as long as requests may take, so that what an
// attempt is granted at the end is given back; but no longer.
func TestCloseWaitsForAMajority(t *testing.T) {
	const far = DefaultTimeout / 5
	inBubble(t, 3, func(t *testing.T, c cluster) {
		for _, server := range c {
			server.set(slow(far, far/2))
		}
		s := New(stores(c.connect()), &Options{CloseStores: true})
		go s.Acquire(context.Background(), request("mine"))
		time.Sleep(far / 2)
		if d := took(func() { s.Close() }); d > DefaultTimeout {
			t.Errorf("Close took %v", d)
		}
		c.holders(t, "", "", "")
	})
	inBubble(t, 3, func(t *testing.T, c cluster) {
		c[0].set(c[0].hang)
		c[1].set(c[1].hang)
		s := c.client(t)
		go s.Acquire(context.Background(), request("mine"))
		synctest.Wait()
		if d := took(func() { s.Close() }); d != DefaultTimeout {
			t.Errorf("Close took %v, want %v", d, DefaultTimeout)
		}
	})
}

// When Close is over, requests that are still on their way are canceled.
func TestCloseCancels(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		conns := c.connect()
		canceled := make(chan struct{})
		conns[0].Set(faultstore.Renew, func(ctx context.Context, _ faultstore.Op, _ func()) error {
			<-ctx.Done()
			close(canceled)
			return ctx.Err()
		})
		s := New(stores(conns), nil)
		req := request("mine")
		grant(t, s, req)
		synctest.Wait()
		renew(t, s, req)
		began := time.Now()
		s.Close()
		<-canceled
		if d := time.Since(began); d > DefaultTimeout/knownNodeShare {
			t.Errorf("canceled after %v", d)
		}
	})
}

package quorumstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultstore"
)

// refuse is a node that answers every request with an error after a round trip.
func refuse(err error) faultstore.Fault {
	return func(context.Context, faultstore.Op, func()) error {
		time.Sleep(there + back)
		return err
	}
}

// stuck is a node that grants, and at which releases meet with a fault.
func stuck(release faultstore.Fault) faultstore.Fault {
	return func(ctx context.Context, op faultstore.Op, apply func()) error {
		if op == faultstore.Release {
			return release(ctx, op, apply)
		}
		return slow(there, back)(ctx, op, apply)
	}
}

// retryIn is a node that cannot serve now.
func retryIn(after time.Duration) faultstore.Fault {
	return refuse(&driver.RetryError{Err: errors.New("it is loading"), After: after})
}

// An attempt whose majority is out of reach returns the right error: a permanent
// one, one after which nothing was changed, one that knows when a majority will be
// there, or none of these while a node that hangs may yet decide it.
func TestMajorityOutOfReach(t *testing.T) {
	refused, corrupt, reset := refuse(faultstore.ErrRefused), refuse(driver.ErrCorrupt), refuse(errors.New("reset"))
	healthy := slow(there, back)
	hung := faultstore.Fault(nil) // stands for server.hang
	const s = time.Second
	for what, c := range map[string]struct {
		nodes   []faultstore.Fault
		is, not error
		later   bool
		after   time.Duration
		takes   time.Duration
	}{
		"all refuse":                              {[]faultstore.Fault{refused, refused, refused}, driver.ErrNotApplied, nil, false, 0, there + back},
		"a majority refuses":                      {[]faultstore.Fault{refused, refused, healthy}, driver.ErrNotApplied, nil, false, 0, 2 * (there + back)},
		"a majority refuses, one hangs":           {[]faultstore.Fault{refused, refused, hung}, driver.ErrNotApplied, nil, false, 0, 2 * (there + back)},
		"one refuses, one hangs":                  {[]faultstore.Fault{refused, healthy, hung}, nil, driver.ErrNotApplied, false, 0, DefaultTimeout},
		"a majority hangs":                        {[]faultstore.Fault{hung, hung, healthy}, nil, driver.ErrNotApplied, false, 0, DefaultTimeout},
		"a majority is corrupt":                   {[]faultstore.Fault{corrupt, corrupt, hung}, driver.ErrCorrupt, nil, false, 0, 2 * (there + back)},
		"one is corrupt":                          {[]faultstore.Fault{corrupt, reset, reset}, nil, driver.ErrCorrupt, false, 0, there + back},
		"one refuses":                             {[]faultstore.Fault{refused, reset, reset}, nil, driver.ErrNotApplied, false, 0, there + back},
		"one is corrupt, one refuses":             {[]faultstore.Fault{corrupt, refused, healthy}, driver.ErrNotApplied, driver.ErrCorrupt, false, 0, 2 * (there + back)},
		"one is loading, one refuses":             {[]faultstore.Fault{retryIn(3 * s), refused, healthy}, driver.ErrNotApplied, nil, true, 3 * s, 2 * (there + back)},
		"all are loading":                         {[]faultstore.Fault{retryIn(3 * s), retryIn(1 * s), retryIn(2 * s)}, driver.ErrNotApplied, nil, true, 2 * s, there + back},
		"two are loading, one does not know when": {[]faultstore.Fault{retryIn(3 * s), retryIn(0), refused}, driver.ErrNotApplied, nil, true, 3 * s, there + back},
		"one is loading, two refuse":              {[]faultstore.Fault{retryIn(3 * s), refused, refused}, driver.ErrNotApplied, nil, false, 0, there + back},
		"one is loading, one hangs":               {[]faultstore.Fault{retryIn(3 * s), healthy, hung}, nil, driver.ErrNotApplied, false, 0, DefaultTimeout},
		"two are loading, one grants for good": {[]faultstore.Fault{retryIn(3 * s), retryIn(1 * s), stuck(reset)},
			driver.ErrNotApplied, nil, true, 1 * s, 2 * (there + back)},
		"two of five are loading, one hangs": {[]faultstore.Fault{retryIn(3 * s), retryIn(2 * s), healthy, healthy, hung},
			nil, driver.ErrNotApplied, false, 0, DefaultTimeout},
		"three of five are loading, one hangs": {[]faultstore.Fault{retryIn(3 * s), retryIn(1 * s), retryIn(2 * s), healthy, hung},
			driver.ErrNotApplied, nil, true, 2 * s, DefaultTimeout + there + back},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, len(c.nodes), func(t *testing.T, servers cluster) {
				for i, fault := range c.nodes {
					if fault == nil {
						fault = servers[i].hang
					}
					servers[i].set(fault)
				}
				store := servers.client(t)
				var err error
				d := took(func() { _, err = store.Acquire(t.Context(), request("mine")) })
				if err == nil || c.is != nil && !errors.Is(err, c.is) || c.not != nil && errors.Is(err, c.not) {
					t.Errorf("%v: want %v, not %v", err, c.is, c.not)
				}
				var later *driver.RetryError
				if errors.As(err, &later) != c.later || later != nil && later.After != c.after {
					t.Errorf("%v: want one that knows when to come back: %v, in %v", err, c.later, c.after)
				}
				var votes *majorityError
				if !errors.As(err, &votes) || strings.Count(err.Error(), "; node ") != len(c.nodes) || !strings.Contains(err.Error(), "node 3 (test): ") {
					t.Errorf("%v does not list the replies", err)
				}
				if strings.Contains(err.Error(), "secret") {
					t.Errorf("%v shows the owner", err)
				}
				if d > c.takes+10*time.Millisecond {
					t.Errorf("%v took %v, want %v", err, d, c.takes)
				}
			})
		})
	}
}

// An attempt that a node which hangs leaves open is given up when a majority is back without it.
func TestNodeThatHangsLeavesNothingOpen(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c cluster) {
		c[0].set(refuse(faultstore.ErrRefused))
		c[1].set(c[1].hang)
		time.AfterFunc(2*time.Second, func() { c[0].set(nil) })
		client := holdfast.New(c.client(t), nil)
		defer client.Close()
		d := took(func() {
			if _, err := client.Acquire(t.Context(), name, nil); err != nil {
				t.Error(err)
			}
		})
		if d > 4*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

package holdfast

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// pingTTL bounds how long the name of a Ping stays taken if the process ends in the middle of it.
const pingTTL = 10 * time.Second

// Ping reports whether the store can be used for locks at this moment, for readiness probes. It
// acquires a lock that no other caller uses and releases it: of the requests that every store
// has, only this one fails on a read-only replica, without the right to write, and without a
// quorum. The name of that lock is holdfast.ping/ and random digits, after Config.Prefix, so a
// program that may only use certain names needs the right to use that, too. Concurrent Pings use
// a name each. Hooks get its requests alone, and Logger nothing.
//
// Ping makes two requests, and returns within two of Config.RequestTimeout, also if ctx is canceled
// before. It does not wait and does not repeat. It does not show whether a certain lock is free.
//
// Errors: [ErrUnavailable] with the reason, joined with ctx.Err() if ctx ended before the store
// had answered; [ErrUnsupported], [ErrInvalid], [ErrCorrupt], [ErrClosed].
func (c *Client) Ping(ctx context.Context) error {
	if err := c.pingStore(ctx); err != nil {
		return fmt.Errorf("holdfast: ping: %w", err)
	}
	return nil
}

func (c *Client) pingStore(ctx context.Context) error {
	o := Options{TTL: pingTTL}
	if err := c.checkCall(ctx, &o); err != nil {
		return err
	}
	if err := c.beginCall(); err != nil {
		return err
	}
	defer c.activeCalls.Done()
	name := c.takePingName()
	full, err := c.fullName(name)
	if err != nil {
		return err
	}
	l := c.newLease(ctx, full, c.newOwner(), &o)
	res, _, err := l.sendAcquire(ctx, driver.AcquireRequest{})
	raiseReading(&l.latestExpiry, c.clock.now()+pingTTL)
	if err == nil && !res.Granted {
		return errPingRefused // the next Ping uses another name
	}
	if err == nil {
		if _, err = l.sendRelease(); err == nil {
			c.returnPingName(name)
			return nil
		}
	}
	if l.maybeGranted {
		c.activeCalls.Go(func() {
			l.releaseUntilExpired(false)
			c.returnPingName(name)
		})
	} else {
		c.returnPingName(name)
	}
	if cut := ctx.Err(); cut != nil {
		return fmt.Errorf("%w: %w", errNotAnswered, cut)
	}
	return storeError(ctx, err)
}

// errPingRefused is the error of a Ping if an earlier Ping has left its name taken.
var errPingRefused = fmt.Errorf("%w: it has granted a lock and not taken it back", ErrUnavailable)

// takePingName returns a name that no other Ping uses at this moment, and that is free as far as
// is known.
func (c *Client) takePingName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.pingNames); n > 0 {
		name := c.pingNames[n-1]
		c.pingNames = c.pingNames[:n-1]
		return name
	}
	return "holdfast.ping/" + c.newOwner()[:16]
}

// returnPingName makes a name available to other Pings.
func (c *Client) returnPingName(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pingNames = append(c.pingNames, name)
}

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// announceDelay is how long a command waits before it reports that it waits, without -v.
const announceDelay = 2 * time.Second

// acquireLock acquires a lock with the flags --try and --wait. Messages of a wait go to w.
func (c *cli) acquireLock(
	ctx context.Context, w io.Writer, client *holdfast.Client, name string, options *holdfast.Options, hold *holdFlags,
) (*holdfast.Lock, error) {
	if hold.try {
		return client.TryAcquire(ctx, name, options)
	}
	delay := announceDelay
	if c.verbose {
		// The current holder is needed before the wait begins.
		lock, err := client.TryAcquire(ctx, name, options)
		if err == nil {
			return lock, nil
		}
		delay = 0
	}
	if c.verbose || isTerminal(os.Stderr) || underCI() {
		defer c.announceWait(ctx, w, client, name, delay)()
	}
	if hold.wait != waitForever {
		options.Wait = hold.wait
	}
	return client.Acquire(ctx, name, options)
}

// underCI reports whether a service for continuous integration runs this process. Such services set
// CI to true or to a name. A wait without output looks like a hang there. cron sets no such
// variable, and mails what is on standard error even of a wait that ends well.
func underCI() bool {
	switch os.Getenv("CI") {
	case "", "0", "false":
		return false
	}
	return true
}

// announceWait reports after delay what the command waits for, unless stop is called first.
func (c *cli) announceWait(
	ctx context.Context, w io.Writer, client *holdfast.Client, name string, delay time.Duration,
) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
		text := fmt.Sprintf("waiting for %q", name)
		if records, err := client.Lookup(ctx, name); err == nil {
			text += ", which " + holderPhrase(lockview.NewLock(records)[0], "is", "has been")
		} else if ctx.Err() != nil || errors.Is(err, holdfast.ErrNotHeld) {
			return // this process has the lock, or is about to get it
		}
		c.notice(w, "%s", text)
	}()
	return func() {
		cancel()
		<-finished
	}
}

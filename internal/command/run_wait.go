package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/supervise"
)

// ancestorsEnv lists the holders of the locks under which a command runs, the outermost first.
// Holders have no spaces in them.
const ancestorsEnv = "HOLDFAST_ANCESTORS"

// announceDelay is how long a command waits before it reports that it waits, without -v.
const announceDelay = 2 * time.Second

// errSelfWait is the error of a command that would wait for itself.
var errSelfWait = errors.New("it would wait for itself")

// acquireLock acquires a lock with the flags --try and --wait. Messages of a wait go to w.
func (c *cli) acquireLock(
	ctx context.Context, w io.Writer, client *holdfast.Client, name string, options *holdfast.Options, try bool, wait time.Duration,
) (*holdfast.Lock, error) {
	if try {
		return client.TryAcquire(ctx, name, options)
	}
	delay := announceDelay
	if c.verbose || os.Getenv(ancestorsEnv) != "" {
		// The current holder is needed before the wait begins.
		lock, err := client.TryAcquire(ctx, name, options)
		if err == nil {
			return lock, nil
		}
		if errors.Is(err, holdfast.ErrHeld) {
			if err := checkSelfWait(ctx, client, name); err != nil {
				return nil, err
			}
			delay = 0
		}
	}
	if c.verbose || isTerminal(os.Stderr) || underCI() {
		if !c.verbose {
			delay = announceDelay
		}
		defer c.announceWait(ctx, w, client, name, delay)()
	}
	if wait != waitForever {
		options.Wait = wait
	}
	return client.Acquire(ctx, name, options)
}

// underCI reports whether a service for continuous integration runs this process. Such services set
// CI to true or to a name. A wait without output looks like a hang there. cron sets no such variable,
// and mails what is on standard error even of a wait that ends well.
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
		if rec, err := client.Lookup(ctx, name); err == nil {
			text += ", which " + holderPhrase(rec, "is", "has been")
		} else if ctx.Err() != nil || errors.Is(err, holdfast.ErrNotHeld) {
			return // this process has the lock, or is about to get it
		}
		reportError(c.messageWriter(w), &exitError{err: errors.New(text)})
	}()
	return func() {
		cancel()
		<-finished
	}
}

// checkSelfWait returns an error if the lock is held by a holdfast from which this process
// descends: that holdfast waits for this process.
func checkSelfWait(ctx context.Context, client *holdfast.Client, name string) error {
	ancestors := strings.Fields(os.Getenv(ancestorsEnv))
	if len(ancestors) == 0 {
		return nil
	}
	rec, err := client.Lookup(ctx, name)
	if err != nil {
		return nil // if the store has failed, the wait returns its error
	}
	pid, ok := holderPID(rec.Holder, ancestors)
	if !ok || !supervise.Descends(pid) {
		return nil
	}
	return &exitError{exitUsage, fmt.Errorf("%q is held by the holdfast that this command runs under (process %d): %w",
		name, pid, errSelfWait), ""}
}

// holderPID returns the process in a holder, if the holder is one of ancestors or, of an
// advisory lock, names this host: "holdfast db1/4711 (PID 815)".
func holderPID(holder string, ancestors []string) (pid int, ok bool) {
	parts := strings.Split(holder, "/")
	if slices.Contains(ancestors, holder) && len(parts) >= 3 {
		pid, err := strconv.Atoi(parts[len(parts)-2])
		return pid, err == nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	rest, ok := strings.CutPrefix(holder, fmt.Sprintf("holdfast %.30s/", host))
	number, _, found := strings.Cut(rest, " (PID ")
	if !ok || !found {
		return 0, false
	}
	pid, err = strconv.Atoi(number)
	return pid, err == nil
}

package main

import (
	"context"
	"errors"
	"fmt"
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

// announceDelay is how long a run waits before it reports that it waits, without -v.
const announceDelay = 2 * time.Second

// errSelfWait is the error of a command that would wait for itself.
var errSelfWait = errors.New("it would wait for itself")

func (r *runCommand) acquire(sup *supervise.Supervisor, client *holdfast.Client) (*holdfast.Lock, error) {
	ctx := sup.Context()
	options := &holdfast.Options{TTL: r.ttl, MinHold: r.minHold, MaxHold: r.maxHold, Metadata: r.meta}
	if r.try {
		return client.TryAcquire(ctx, r.name, options)
	}
	delay := announceDelay
	if r.verbose || os.Getenv(ancestorsEnv) != "" {
		// The current holder is needed before the wait begins.
		lock, err := client.TryAcquire(ctx, r.name, options)
		if err == nil {
			return lock, nil
		}
		if errors.Is(err, holdfast.ErrHeld) {
			if err := checkSelfWait(ctx, client, r.name); err != nil {
				return nil, err
			}
			delay = 0
		}
	}
	if r.verbose || isTerminal(os.Stderr) || underCI() {
		if !r.verbose {
			delay = announceDelay
		}
		defer r.announce(sup, client, delay)()
	}
	if r.wait != waitForever {
		options.Wait = time.Duration(r.wait)
	}
	return client.Acquire(ctx, r.name, options)
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

// announce reports after delay what the command waits for, unless stop is called first.
func (r *runCommand) announce(sup *supervise.Supervisor, client *holdfast.Client, delay time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(sup.Context())
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
		text := fmt.Sprintf("waiting for %q", r.name)
		if rec, err := client.Lookup(ctx, r.name); err == nil {
			text += ", which " + holderPhrase(rec, "is", "has been")
		} else if ctx.Err() != nil || errors.Is(err, holdfast.ErrNotHeld) {
			return // this process has the lock, or is about to get it
		}
		reportError(r.messageWriter(sup), &exitError{err: errors.New(text)})
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

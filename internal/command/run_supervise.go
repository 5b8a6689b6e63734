package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/supervise"
)

// withClient opens the store, and runs the command under the lock.
func (r *runCommand) withClient(sup *supervise.Supervisor, path string) *exitError {
	config := r.config(sup)
	config.Holder = holderName(sup)
	client, err := r.store.openClient(sup.Context(), config)
	if err != nil {
		return exitErrorFor(err)
	}
	defer client.Close() // Release has already reported what Close could report
	stop, err := r.servePage(client, sup)
	if err != nil {
		return exitErrorFor(err)
	}
	defer stop()
	for {
		e := r.work(sup, client, path)
		if !errors.Is(e, supervise.ErrSuspended) {
			return e
		}
		if err := sup.Resumed(); err != nil {
			return r.startFailed(err)
		}
	}
}

// acquireAndRun acquires the lock, runs the command under it, and gives it back.
func (r *runCommand) acquireAndRun(sup *supervise.Supervisor, client *holdfast.Client, path string) *exitError {
	options := &holdfast.Options{TTL: r.ttl, MaxHold: r.maxHold, Metadata: r.meta}
	if can := client.Guarantees(); r.minHold > 0 && !can.Keep {
		return exitErrorFor(fmt.Errorf("%w: --min-hold on the %s store, which keeps no names", holdfast.ErrUnsupported, can.Store))
	}
	lock, err := r.hold.acquire(sup.Context(), client, r.name, options)
	if err != nil {
		return r.acquireFailed(sup, err)
	}
	acquired := time.Now()
	result, err := r.runUnderLock(sup, client, lock, path)
	if err != nil {
		_ = lock.Release() // without --min-hold: nothing has run
		return r.startFailed(err)
	}
	held := time.Since(acquired)
	if rest := r.minHold - time.Since(lock.Since()); rest > 0 {
		return r.commandEnded(result, held, lock.ReleaseKeep(max(rest, driver.MinTTL)))
	}
	return r.commandEnded(result, held, lock.Release())
}

// runUnderLock runs the command under a lock.
func (r *runCommand) runUnderLock(
	sup *supervise.Supervisor, client *holdfast.Client, lock *holdfast.Lock, path string,
) (supervise.Result, error) {
	if r.standby != nil {
		r.standby.Stop()
		r.led = true
	}
	if r.page != nil {
		r.page.lock.Store(lock)
		defer r.page.lock.Store(nil)
	}
	// A lock that was waited for in the queue of a store has a lease of some seconds until its
	// first renewal: the command, which --kill-after may have end seconds before that, would not be
	// started. Without an answer the rest of the lease decides.
	full := r.ttl
	if r.maxHold > 0 {
		full = min(full, r.maxHold)
	}
	if time.Until(lock.Deadline()) < full*2/3 {
		_ = lock.Extend(sup.Context(), r.ttl)
	}
	command, err := r.buildCommand(path, client, lock)
	for _, f := range command.Pin {
		defer f.Close() // nothing was written
	}
	if err != nil {
		return supervise.Result{}, err
	}
	return sup.Run(command, lock)
}

// holderName returns what package holdfast would choose, but with the process that the user has
// started and can kill.
func holderName(sup *supervise.Supervisor) string {
	host, err := os.Hostname()
	if err != nil || len(host) > 200 {
		host = "localhost"
	}
	return fmt.Sprintf("%s/%d/%s", host, sup.Parent(), rand.Text()[:8])
}

// buildCommand returns the command, with the variables that describe its lock. The caller closes
// the files of Pin, also after an error.
func (r *runCommand) buildCommand(path string, client *holdfast.Client, lock *holdfast.Lock) (cmd *supervise.Command, err error) {
	_ = os.Setenv("HOLDFAST_NAME", lock.Name()) // They contain no NUL.
	_ = os.Setenv("HOLDFAST_TOKEN", fmt.Sprint(lock.Token()))
	_ = os.Setenv("HOLDFAST_HOLDER", lock.Holder())
	cmd = &supervise.Command{Path: path, Args: r.command, Env: os.Environ(), OnLost: r.onLost, KillAfter: r.killAfter}
	// Some stores have a session that lasts as long as a file is open: while any descendant has
	// inherited the file the lock is not free before its TTL, even if both processes are
	// killed.
	if store, ok := client.Store().(interface{ Session() *os.File }); ok {
		if f := store.Session(); f != nil {
			cmd.Hold = []*os.File{f}
		}
	}
	// The locks of some stores end with a connection: the parent keeps that open until it has
	// killed the processes that the supervisor has left behind. On Windows there is no parent
	// process.
	if store, ok := client.Store().(interface{ Connections() ([]*os.File, error) }); ok && runtime.GOOS != "windows" {
		cmd.Pin, err = store.Connections()
	}
	return cmd, err
}

// acquireFailed explains why there is no lock.
func (r *runCommand) acquireFailed(sup *supervise.Supervisor, err error) *exitError {
	var interrupt *supervise.Interrupt
	if errors.As(context.Cause(sup.Context()), &interrupt) {
		return &exitError{code: interrupt.Code()}
	}
	e := r.hold.explain(err)
	if e.code == exitBusy {
		if e.code = r.conflictCode; r.quiet {
			e.err = nil // also with the code of a wrong command line
		}
	}
	return e
}

// startFailed explains why there is a lock but no command.
func (r *runCommand) startFailed(err error) *exitError {
	var interrupt *supervise.Interrupt
	var e *exitError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &interrupt):
		return &exitError{code: interrupt.Code()}
	case errors.Is(err, supervise.ErrSuspended):
		return &exitError{err: err} // withClient waits, and tries again
	case errors.Is(err, supervise.ErrLate), errors.Is(err, supervise.ErrAbandoned):
		return &exitError{exitLost, err, ""}
	}
	return cannotExecute(r.command[0], err)
}

// commandEnded derives the exit code from the end of the command and of the lock.
func (r *runCommand) commandEnded(result supervise.Result, held time.Duration, released error) *exitError {
	switch {
	case result.Abandoned:
		return &exitError{exitLost, errors.New("the command was killed, since holdfast was"), ""}
	case result.Stopped:
		reason := errors.New("the lock could not be renewed in time")
		if r.maxHold > 0 && held > r.maxHold-r.killAfter-2*supervise.Margin {
			reason = errors.New("it had run for as long as --max-hold allows")
		}
		if errors.Is(released, holdfast.ErrLost) {
			reason = released // which has it
		} else if released != nil {
			reason = fmt.Errorf("%w (and %w)", reason, released)
		}
		return &exitError{exitLost, fmt.Errorf("the command was stopped: %w", reason), ""}
	case released != nil:
		return &exitError{exitUnconfirmed, fmt.Errorf("the command has ended with exit code %d, but: %w", result.Code, released), ""}
	}
	return &exitError{code: result.Code}
}

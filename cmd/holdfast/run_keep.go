package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/supervise"
)

// keep holds the lock while the command runs, and returns the exit code.
func (r *runCommand) keep(k *supervise.Keeper, path string) int {
	began := time.Now()
	s := &status{Name: r.name}
	return report(k, r.finish(k, s, r.hold(k, path, s, began)))
}

// hold does the work of keep, and notes in s how it goes.
func (r *runCommand) hold(k *supervise.Keeper, path string, s *status, began time.Time) *exit {
	client, err := r.store.open(k.Context(), r.config(k))
	if err != nil {
		s.Outcome = unavailable
		return failure(err)
	}
	defer client.Close() // what it could report, Release has reported
	if r.elect {
		return r.stand(k, client, path, s)
	}
	return r.turn(k, client, path, s, began)
}

// turn acquires the lock, runs the command under it, and gives it back.
func (r *runCommand) turn(k *supervise.Keeper, client *holdfast.Client, path string, s *status, began time.Time) *exit {
	lock, err := r.acquire(k, client)
	s.WaitedMS = time.Since(began).Milliseconds()
	if err != nil {
		return r.notAcquired(k, s, err)
	}
	acquired := time.Now()
	s.Token, s.Holder = lock.Token(), lock.Holder()

	result, err := k.Run(r.start(path, client, lock), lock)
	held := time.Since(acquired)
	s.HeldMS = held.Milliseconds()
	released := lock.Release()
	if err != nil {
		return r.notStarted(s, err)
	}
	return r.judge(s, result, held, released)
}

func (r *runCommand) config(k *supervise.Keeper) *holdfast.Config {
	config := &holdfast.Config{Holder: holder(k)}
	if r.elect {
		config.Outage = outageOfCandidates
	}
	config.Hooks.Renewed = func(string, time.Duration) { k.Renewed() }
	if r.verbose && !r.quiet {
		config.Logger = slog.New(slog.NewTextHandler(r.out(k), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return config
}

// holder is what package holdfast would choose, but with the process that the
// user has started and can kill.
func holder(k *supervise.Keeper) string {
	host, err := os.Hostname()
	if err != nil || len(host) > 200 {
		host = "localhost"
	}
	return fmt.Sprintf("%s/%d/%s", host, k.Front(), rand.Text()[:8])
}

func (r *runCommand) acquire(k *supervise.Keeper, client *holdfast.Client) (*holdfast.Lock, error) {
	options := &holdfast.Options{TTL: r.ttl, MinHold: r.minHold, MaxHold: r.maxHold, Metadata: r.meta}
	if r.try {
		return client.TryAcquire(k.Context(), r.name, options)
	}
	if r.wait != forever {
		options.Wait = time.Duration(r.wait)
	}
	return client.Acquire(k.Context(), r.name, options)
}

// start is the command with what it is told about its lock.
func (r *runCommand) start(path string, client *holdfast.Client, lock *holdfast.Lock) *supervise.Command {
	cmd := &supervise.Command{
		Path: path,
		Args: r.command,
		Env: environment(map[string]string{
			"HOLDFAST_NAME":   lock.Name(),
			"HOLDFAST_TOKEN":  fmt.Sprint(lock.Token()),
			"HOLDFAST_HOLDER": lock.Holder(),
		}),
		OnLost:    supervise.Policy(r.onLost),
		KillAfter: r.killAfter,
	}
	// A store with a session that lives as long as a file is open: while any
	// descendant has inherited it the lock is not free before its TTL, even if
	// both our processes are killed.
	if store, ok := client.Store().(interface{ Session() *os.File }); ok {
		if f := store.Session(); f != nil {
			cmd.Hold = []*os.File{f}
		}
	}
	return cmd
}

// environment is ours with some variables set.
func environment(set map[string]string) []string {
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if _, replaced := set[name]; !replaced {
			env = append(env, entry)
		}
	}
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	return env
}

// notAcquired explains why there is no lock.
func (r *runCommand) notAcquired(k *supervise.Keeper, s *status, err error) *exit {
	var interrupt *supervise.Interrupt
	if errors.As(context.Cause(k.Context()), &interrupt) {
		s.Outcome = interrupted
		return &exit{code: interrupt.Code()}
	}
	e := failure(err)
	s.Outcome = unavailable
	if e.code == exitBusy {
		s.Outcome = busy
		if r.once {
			return r.nothingToDo(err)
		}
		e.code = int(r.conflictCode)
		e.try = "--wait with more time"
	}
	return e
}

// notStarted explains why there is a lock but no command.
func (r *runCommand) notStarted(s *status, err error) *exit {
	s.Outcome = notStarted
	var interrupt *supervise.Interrupt
	switch {
	case errors.As(err, &interrupt):
		s.Outcome = interrupted
		return &exit{code: interrupt.Code()}
	case errors.Is(err, supervise.ErrLate), errors.Is(err, supervise.ErrAbandoned):
		s.Outcome = lost
		return &exit{exitLost, err, ""}
	}
	return cannotStart(r.command[0], err)
}

// judge turns the end of the command and of the lock into an outcome.
func (r *runCommand) judge(s *status, result supervise.Result, held time.Duration, released error) *exit {
	s.CommandExitCode = &result.Code
	if !result.Lost.IsZero() {
		s.LostAt = &result.Lost
	}
	switch {
	case result.Abandoned:
		s.Outcome = abandoned
		return &exit{exitLost, errors.New("the command was killed, since holdfast was"), ""}
	case result.Stopped:
		s.Outcome = lost
		return &exit{exitLost, fmt.Errorf("the command was stopped: %w", r.reason(held, released)), ""}
	case released != nil:
		s.Outcome = unconfirmed
		return &exit{exitUnconfirmed, fmt.Errorf("the command has ended with exit code %d, but: %w", result.Code, released), ""}
	}
	s.Outcome = done
	return &exit{code: result.Code}
}

// reason is why a command was stopped.
func (r *runCommand) reason(held time.Duration, released error) error {
	switch {
	case released != nil:
		return released
	case r.maxHold > 0 && held > r.maxHold-r.killAfter-2*supervise.Margin:
		return errors.New("it had run for as long as --max-hold allows")
	}
	return errors.New("the lock could not be renewed in time")
}

// out is where to talk.
func (r *runCommand) out(w io.Writer) io.Writer {
	if r.quiet {
		return io.Discard
	}
	return w
}

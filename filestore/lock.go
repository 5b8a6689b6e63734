package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

type lockKind uint8

const (
	exclusive lockKind = iota
	shared
)

// errLocked means that somebody else has the file locked.
var errLocked = errors.New("locked")

// queued bounds how many threads of this process wait in the kernel for a file.
// One whose request has ended cannot be called back: it stays until whoever has
// the file locked goes on, and a process that was stopped in the few
// microseconds in which it has one may be stopped for long.
var queued = make(chan struct{}, 64)

// lock locks a file, and gives up when ctx ends. The file must then be closed.
func lock(ctx context.Context, f *os.File, how lockKind) error {
	err := tryLock(f, how)
	if errors.Is(err, errLocked) {
		err = queue(ctx, f, how)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("%s is kept locked by another process, which is stopped or whose disk hangs: %w (%w)",
			f.Name(), err, driver.ErrNotApplied)
	}
	return notApplied(fault("lock", f.Name(), err))
}

// queue waits in the kernel until the file is ours: there waiters are served in
// turn, and cost nothing. While there is no room for one more it asks again from
// time to time.
func queue(ctx context.Context, f *os.File, how lockKind) error {
	const interval = 5 * time.Millisecond
	for {
		select {
		case queued <- struct{}{}:
			return waitInKernel(ctx, f, how)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(interval):
		}
		if err := tryLock(f, how); !errors.Is(err, errLocked) {
			return err
		}
	}
}

// waitInKernel leaves the wait behind if ctx ends. The caller then closes f, and
// what the wait may still get is unlocked as soon as it has it.
func waitInKernel(ctx context.Context, f *os.File, how lockKind) error {
	done := make(chan error, 1)
	go func() {
		defer func() { <-queued }()
		done <- waitLock(f, how)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pause lets time pass, and returns the error of ctx if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

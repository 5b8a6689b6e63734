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

// errLocked means that another open file holds the lock.
var errLocked = errors.New("locked")

// kernelWaits bounds the number of threads of this process that wait in the kernel for a file. Such
// a wait cannot be canceled when its request ends: it lasts until the process that has the file
// locked goes on. A process that was stopped in the few microseconds in which it has a file locked
// may be stopped for long.
var kernelWaits = make(chan struct{}, 64)

// lock locks a file. It returns an error when ctx ends first, and the caller must close the file
// then.
func lock(ctx context.Context, f *os.File, how lockKind) error {
	err := tryLock(f, how)
	if errors.Is(err, errLocked) {
		err = waitInQueue(ctx, f, how)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return driver.NotApplied(fmt.Errorf(
			"%s is kept locked by another process, which is stopped or whose disk hangs: %w", f.Name(), err))
	}
	return driver.NotApplied(wrapErr("lock", f.Name(), err))
}

// waitInQueue waits in the kernel until the file is locked. The kernel serves waiters in order, and
// they cost nothing. While kernelWaits is full, waitInQueue tries again at intervals.
func waitInQueue(ctx context.Context, f *os.File, how lockKind) error {
	const interval = 5 * time.Millisecond
	for {
		select {
		case kernelWaits <- struct{}{}:
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

// waitInKernel returns when ctx ends, and leaves its goroutine waiting. The caller then closes f,
// so that a lock that the goroutine still gets is released at once.
func waitInKernel(ctx context.Context, f *os.File, how lockKind) error {
	done := make(chan error, 1)
	go func() {
		defer func() { <-kernelWaits }()
		done <- waitLock(f, how)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

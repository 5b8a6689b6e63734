package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// errLocked means that another open file holds the lock.
var errLocked = errors.New("locked")

// kernelWaits bounds the number of threads of this process that wait in the kernel for a file. Such
// a wait cannot be canceled when its request ends: it lasts until the process that has the file
// locked goes on. A process that was stopped in the few microseconds in which it has a file locked
// may be stopped for long.
var kernelWaits = make(chan struct{}, 64)

// lock locks a file, exclusive or shared. It returns an error when ctx ends first, and the caller
// must close the file then. The kernel serves those that wait for a file in order, at no cost.
// While kernelWaits is full, lock tries again at intervals.
func lock(ctx context.Context, f *os.File, how int) error {
	const interval = 5 * time.Millisecond
	err := tryLock(f, how)
	for errors.Is(err, errLocked) {
		select {
		case kernelWaits <- struct{}{}:
			err = waitInKernel(ctx, f, how)
		default:
			if err = retry.Sleep(ctx, interval); err == nil {
				err = tryLock(f, how)
			}
		}
	}
	if err != nil && errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%s is kept locked by another process, which is stopped or whose disk hangs: %w", f.Name(), err)
		return driver.NotApplied(err)
	}
	return notApplied("lock", f.Name(), err)
}

// waitInKernel waits until the file is locked. It returns when ctx ends, and leaves its goroutine
// waiting. The caller then closes f, so that a lock that the goroutine still gets is released at
// once.
func waitInKernel(ctx context.Context, f *os.File, how int) error {
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

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

// lock locks a file as soon as it can, and gives up when ctx ends. It asks again
// and again rather than wait in the kernel, since a process that was stopped in
// the few microseconds in which it had the file locked would hold up a waiter
// there beyond any deadline.
func lock(ctx context.Context, f *os.File, how lockKind) error {
	const first, last = 20 * time.Microsecond, time.Millisecond
	for delay := first; ; delay = min(2*delay, last) {
		err := tryLock(f, how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errLocked) {
			return notApplied(fault("lock", f.Name(), err))
		}
		if err := pause(ctx, delay); err != nil {
			return fmt.Errorf("%s stays locked, by a process that is stopped or whose disk hangs: %w (%w)",
				f.Name(), err, driver.ErrNotApplied)
		}
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

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

// lock locks a file, exclusive or shared. A file is locked for microseconds, but by a process that was
// stopped meanwhile: lock tries at intervals until ctx ends, and returns an error then.
func lock(ctx context.Context, f *os.File, how int) error {
	const first, last = 50 * time.Microsecond, 5 * time.Millisecond
	err := tryLock(f, how)
	for interval := first; errors.Is(err, errLocked); interval = min(2*interval, last) {
		if err = retry.Sleep(ctx, interval); err == nil {
			err = tryLock(f, how)
		}
	}
	if err != nil && errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%s is kept locked by another process, which is stopped or whose disk hangs: %w", f.Name(), err)
		return driver.NotApplied(err)
	}
	return notApplied("lock", f.Name(), err)
}

//go:build linux || darwin

package supervise

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A sharedState is a page of memory that parent and supervisor share. In it the supervisor
// writes what the parent has to do if the supervisor fails to do it. With messages instead of
// shared memory, a parent that had been stopped for a while would read old messages first, and
// would act on them.
type sharedState struct {
	// termAt and killAt are when the command gets SIGTERM and SIGKILL; 0 is never.
	termAt, killAt atomic.Int64

	// commandPID is the process id of the command, 0 before it was started.
	commandPID atomic.Int64

	// parentActed is 1 when the parent has sent SIGTERM in the supervisor's place.
	parentActed atomic.Int64

	// cleanExit is 1 when the supervisor has ended its work in good order.
	cleanExit atomic.Int64

	// keepFilesOpen is 1 while the parent has to keep open the files that it was sent.
	keepFilesOpen atomic.Int64
}

// newSharedState creates a shared state and returns the file to pass to the supervisor.
func newSharedState() (*sharedState, int, error) {
	fd, err := memoryFile()
	if err != nil {
		return nil, 0, fmt.Errorf("create shared memory: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(unix.Getpagesize())); err != nil {
		return nil, 0, fmt.Errorf("size shared memory: %w", err)
	}
	s, err := mapSharedState(fd)
	return s, fd, err
}

// mapSharedState maps the shared state in the file.
func mapSharedState(fd int) (*sharedState, error) {
	page, err := unix.Mmap(fd, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory: %w", err)
	}
	return (*sharedState)(unsafe.Pointer(&page[0])), nil
}

// nextAction returns the earlier of termAt and killAt.
func (s *sharedState) nextAction() instant {
	return min(getInstant(&s.termAt), getInstant(&s.killAt))
}

func getInstant(at *atomic.Int64) instant {
	if at := at.Load(); at != 0 {
		return instant(at)
	}
	return never
}

func setInstant(at *atomic.Int64, when instant) {
	if when == never {
		when = 0
	}
	at.Store(int64(when))
}

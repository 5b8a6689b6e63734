//go:build linux || darwin

package supervise

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A board is a page of memory that front and keeper share. The keeper writes
// down what the front is to do if the keeper itself is not there to do it. Were
// these messages instead, a front that had been stopped for a while would find
// old ones first, and would act on them.
type board struct {
	// term and kill are when the command is to get SIGTERM and SIGKILL; 0 is
	// not at all.
	term, kill atomic.Int64

	// command is the process id of the command, 0 before it was started.
	command atomic.Int64

	// steppedIn is 1 when the front has sent SIGTERM in the keeper's place.
	steppedIn atomic.Int64

	// done is 1 when the keeper has ended its work in good order.
	done atomic.Int64
}

// newBoard makes a board and returns the file to hand to the keeper.
func newBoard() (*board, int, error) {
	fd, err := memoryFile()
	if err != nil {
		return nil, 0, fmt.Errorf("create shared memory: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(unix.Getpagesize())); err != nil {
		return nil, 0, fmt.Errorf("size shared memory: %w", err)
	}
	b, err := mapBoard(fd)
	return b, fd, err
}

// mapBoard maps the board that the file holds.
func mapBoard(fd int) (*board, error) {
	page, err := unix.Mmap(fd, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory: %w", err)
	}
	return (*board)(unsafe.Pointer(&page[0])), nil
}

// next is when something is to be done.
func (b *board) next() instant {
	return min(due(&b.term), due(&b.kill))
}

func due(at *atomic.Int64) instant {
	if at := at.Load(); at != 0 {
		return instant(at)
	}
	return never
}

func post(at *atomic.Int64, when instant) {
	if when == never {
		when = 0
	}
	at.Store(int64(when))
}

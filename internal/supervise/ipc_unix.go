//go:build linux || darwin

package supervise

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The messages of parent and supervisor are single bytes. The parent sends numbers of signals, too.
const (
	lookMessage  = 0    // from the supervisor: look at the shared state, keep open what comes along
	askMessage   = 1    // from the supervisor: may a command start?
	startMessage = 0x40 // from the parent: a command may start

	// keyboardBit marks a signal that the terminal may have sent to the whole foreground group.
	keyboardBit = 0x80
)

// A controlConn is one end of the connection between parent and supervisor. No other process has
// either end, so that a closed connection means that the process at the other end has ended.
type controlConn struct {
	*net.UnixConn
	fd   int // for what must not block
	file *os.File
}

// newControlConn returns this process's end and the descriptor of the other end.
func newControlConn() (*controlConn, int, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("connect parent and supervisor: %w", err)
	}
	unix.CloseOnExec(ends[1])
	c, err := openControlConn(ends[0])
	return c, ends[1], err
}

func openControlConn(fd int) (*controlConn, error) {
	unix.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "link")
	conn, err := net.FileConn(file) // which has a descriptor of its own
	if err != nil {
		return nil, fmt.Errorf("connect parent and supervisor: %w", err)
	}
	return &controlConn{conn.(*net.UnixConn), fd, file}, nil
}

// trySend sends as much as there is room for, with the descriptors. It never blocks, since the
// other process may be stopped. It is receive that tells when that has ended.
func (c *controlConn) trySend(data []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	return unix.Sendmsg(c.fd, data, rights, nil, unix.MSG_DONTWAIT)
}

func (c *controlConn) sendMessage(m byte, fds ...int) { _ = c.trySend([]byte{m}, fds...) }

// receive blocks until there are messages, and returns the descriptors that came with them. It
// returns no message when the other process has ended.
func (c *controlConn) receive() (messages []byte, fds []int) {
	data, oob := make([]byte, 64), make([]byte, 1024)
	n, rights, _, _, err := c.ReadMsgUnix(data, oob)
	if err != nil {
		return nil, nil
	}
	controls, _ := unix.ParseSocketControlMessage(oob[:rights]) // the kernel wrote it
	for _, control := range controls {
		passed, _ := unix.ParseUnixRights(&control)
		fds = append(fds, passed...)
	}
	return data[:n], fds
}

// A sharedState is a page of memory that parent and supervisor share. In it the supervisor
// writes what the parent has to do if the supervisor fails to do it. With messages instead of
// shared memory, a parent that had been stopped for a while would read old messages first, and
// would act on them.
type sharedState struct {
	termAt, killAt atomic.Int64 // when the command gets SIGTERM and SIGKILL: instants
	commandPID     atomic.Int64 // of the command, 0 while there is none
	endSignal      atomic.Int64 // that has ended the command or the wait for the lease, 0 for none
	result         atomic.Int64 // 1 more than the exit code, 0 until body has returned
	parentActed    atomic.Int64 // 1 if the parent has sent SIGTERM since the command has started
	keepFilesOpen  atomic.Int64 // 1 while the parent has to keep open the files that it was sent
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
	if err == nil {
		s.setDeadlines(never, never)
	}
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

func (s *sharedState) setDeadlines(term, kill instant) {
	s.termAt.Store(int64(term))
	s.killAt.Store(int64(kill))
}

func (s *sharedState) deadlines() (term, kill instant) {
	return instant(s.termAt.Load()), instant(s.killAt.Load())
}

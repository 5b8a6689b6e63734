//go:build linux || darwin

package supervise

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A link is one end of the connection between front and keeper. Down go
// signals, a byte each. Up goes what the keeper has to say, which the front
// writes to its standard error, with zero bytes in between that say nothing but
// "look at the board". That the other end has closed means that the other process has
// ended: nobody else has it.
type link struct {
	fd int
	f  *os.File
}

// newLink returns our end and the descriptor of the other.
func newLink() (*link, int, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("connect front and keeper: %w", err)
	}
	unix.CloseOnExec(ends[0])
	unix.CloseOnExec(ends[1])
	l, err := openLink(ends[0])
	return l, ends[1], err
}

func openLink(fd int) (*link, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("connect front and keeper: %w", err)
	}
	return &link{fd: fd, f: os.NewFile(uintptr(fd), "link")}, nil
}

// send writes what there is room for and never waits: the other process may be
// stopped.
func (l *link) send(data []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	return unix.Sendmsg(l.fd, data, rights, nil, 0)
}

// receive waits for data. Descriptors that come with it stay open until this
// process ends.
func (l *link) receive(data []byte) (int, error) {
	raw, err := l.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var failure error
	oob := make([]byte, 1024)
	err = raw.Read(func(fd uintptr) bool {
		n, _, _, _, failure = unix.Recvmsg(int(fd), data, oob, 0)
		return failure != unix.EAGAIN && failure != unix.EINTR
	})
	if err != nil {
		return 0, err
	}
	return n, failure
}

// relay passes on what the keeper says, and calls look each time. It returns when
// the keeper has ended.
func (l *link) relay(to *os.File, look func()) {
	data := make([]byte, 4096)
	for {
		n, err := l.receive(data)
		if n == 0 || err != nil {
			return
		}
		look()
		if text := bytes.ReplaceAll(data[:n], []byte{0}, nil); len(text) > 0 {
			_, _ = to.Write(text)
		}
	}
}

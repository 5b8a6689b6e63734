//go:build linux || darwin

package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A controlConn is one end of the connection between parent and supervisor. The parent sends
// signals, a byte each. The supervisor sends the text that the parent writes to its standard
// error, mixed with zero bytes that only mean "read the shared state". No other process has
// either end, so that a closed connection means that the process at the other end has ended.
type controlConn struct {
	fd   int
	file *os.File
}

// newControlConn returns this process's end and the descriptor of the other end.
func newControlConn() (*controlConn, int, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("connect parent and supervisor: %w", err)
	}
	unix.CloseOnExec(ends[0])
	unix.CloseOnExec(ends[1])
	c, err := openControlConn(ends[0])
	return c, ends[1], err
}

func openControlConn(fd int) (*controlConn, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("connect parent and supervisor: %w", err)
	}
	return &controlConn{fd: fd, file: os.NewFile(uintptr(fd), "link")}, nil
}

// trySend writes as much as there is room for, and passes descriptors along. It never blocks:
// the other process may be stopped.
func (c *controlConn) trySend(data []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	return unix.Sendmsg(c.fd, data, rights, nil, 0)
}

// receive blocks until there is data, and returns the descriptors that came with it.
func (c *controlConn) receive(data []byte) (n int, fds []int, err error) {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	var rights int
	var failure error
	oob := make([]byte, 1024)
	err = raw.Read(func(fd uintptr) bool {
		n, rights, _, _, failure = unix.Recvmsg(int(fd), data, oob, 0)
		return failure != unix.EAGAIN && failure != unix.EINTR
	})
	if err != nil || failure != nil {
		return 0, nil, errors.Join(err, failure)
	}
	return n, receivedFDs(oob[:rights]), nil
}

// receivedFDs returns the descriptors in a control message, marked close-on-exec.
func receivedFDs(oob []byte) (fds []int) {
	messages, _ := unix.ParseSocketControlMessage(oob) // the kernel wrote it
	for _, m := range messages {
		rights, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range rights {
			unix.CloseOnExec(fd)
		}
		fds = append(fds, rights...)
	}
	return fds
}

// relayOutput copies the text that the supervisor sends, and calls onMessage for each message
// with the descriptors that came with it. It returns when the supervisor has ended.
func (c *controlConn) relayOutput(to *os.File, onMessage func(fds []int)) {
	data := make([]byte, 4096)
	for {
		n, fds, err := c.receive(data)
		if n == 0 || err != nil {
			return
		}
		onMessage(fds)
		if text := bytes.ReplaceAll(data[:n], []byte{0}, nil); len(text) > 0 {
			_, _ = to.Write(text)
		}
	}
}

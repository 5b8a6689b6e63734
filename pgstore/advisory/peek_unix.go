//go:build unix

package advisory

import (
	"net"
	"syscall"
)

// hasInput reports whether there is something to read, or the connection has ended. It does not
// wait.
func hasInput(raw net.Conn) bool {
	c, ok := raw.(syscall.Conn)
	if !ok {
		return true
	}
	descriptor, err := c.SyscallConn()
	if err != nil {
		return true
	}
	var peeked error
	err = descriptor.Read(func(fd uintptr) bool {
		_, _, peeked = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return true
	})
	return err != nil || peeked != syscall.EAGAIN
}

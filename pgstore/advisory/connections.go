package advisory

import (
	"fmt"
	"net"
	"os"
)

// Connections returns duplicates of the descriptors of the connections of sessions that hold locks
// now. The caller closes them, and must neither read nor write them.
//
// It is for programs that hand their locks to a child. The server ends a session, and with it the
// locks, when no process has its connection open any more. A process that was given a duplicate
// beforehand keeps the locks in force if this one is killed, until it closes the duplicate, or
// until the server's idle_session_timeout, which is the TTL (PostgreSQL 14 and later). A duplicate
// does not keep a connection that the server or the network ends. On Windows Connections returns an
// error.
func (s *Store) Connections() ([]*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var files []*os.File
	for _, sess := range s.sessions {
		if sess.leaseCount == 0 {
			continue
		}
		f, err := duplicateConn(sess.conn)
		if err != nil {
			for _, f := range files {
				_ = f.Close()
			}
			return nil, fmt.Errorf("duplicate a connection: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

func duplicateConn(conn net.Conn) (*os.File, error) {
	filer, ok := transport(conn).(interface{ File() (*os.File, error) })
	if !ok {
		return nil, fmt.Errorf("a %T has no descriptor", conn)
	}
	return filer.File()
}

// transport returns the connection below TLS.
func transport(conn net.Conn) net.Conn {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return over.NetConn()
	}
	return conn
}

// disconnect closes a connection, at the server too if another process has a duplicate.
func disconnect(conn net.Conn) {
	if half, ok := transport(conn).(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // The other end may have closed it.
	}
	_ = conn.Close() // As above.
}

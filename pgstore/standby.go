package pgstore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/holdfast-go/holdfast/driver"
)

// errWarned is the error of a statement that was answered together with a warning. A commit
// succeeds if its wait for a standby was canceled, and only a warning shows that no standby may
// have it.
var errWarned = errors.New("the server sent a warning: the change may be on no standby, and its outcome is unknown")

// failOnWarning runs a statement on a connection, and returns errWarned if the server sends a
// notice or a warning before it is ready for the next one. The client library passes notices to a
// function of the pool's owner. failOnWarning reads them from the wire, without that function.
func failOnWarning(c conn, run func() error) error {
	conn, err := c.rawConn()
	if err != nil {
		return driver.NotApplied(err)
	}
	if conn == nil {
		return fmt.Errorf("%w: RequireStandby needs the client library pgx", driver.ErrUnsupported)
	}
	var notices noticeCounter
	front := conn.PgConn().Frontend()
	front.Trace(&notices, pgproto3.TracerOptions{SuppressTimestamps: true})
	err = run()
	if !conn.PgConn().IsClosed() { // else another goroutine of pgx may be sending its farewell
		front.Untrace()
	}
	if err == nil && notices > 0 {
		return errWarned
	}
	return err
}

// A noticeCounter counts the notices in the trace of a connection, which has a line for each
// message: the side that sent it (B for the server), its name, its length.
type noticeCounter int

func (n *noticeCounter) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, []byte("B\tNoticeResponse\t")) {
		*n++
	}
	return len(line), nil
}

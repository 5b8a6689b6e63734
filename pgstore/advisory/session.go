package advisory

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// replyTimeout is how long a session may leave a statement without a reply before it gets no new
// lock. writeTimeout bounds a write, which blocks a caller. closeTimeout is how long a session that
// is closed waits for the server to release its locks.
const (
	replyTimeout = 5 * time.Second
	writeTimeout = time.Second
	closeTimeout = time.Second
)

// maxBatch bounds the statements of a batch. A batch and its replies fit into the buffers of the
// connection: the reader, while it writes one, does not wait for a server that waits for the
// reader. maxBatchesInFlight bounds the batches without a reply: while the server works on one, the
// next is on its way.
const (
	maxBatch           = 256
	maxBatchesInFlight = 2
)

// A session is a connection that advisory locks live on. Any goroutine may send statements. Those
// that come while batches are in flight are sent together in the next one, as one transaction: that
// costs the server a fraction of a transaction for each. One goroutine reads all the time. It
// distributes the replies, and so detects at once that the connection has ended.
type session struct {
	conn    net.Conn
	pid     uint32
	started string // when the session began, as the server reports it

	// onEnded handles the end. notify is called after all pending statements are done.
	onEnded func(cause error) (notify func())

	onNotification func(payload string) // handles a notification; nil where none is expected

	mu              sync.Mutex         // guards the next seven; never held while a done is called
	frontend        *pgproto3.Frontend // its write side; the reader has its read side for itself
	queue           []statement        // not sent yet, since enough batches are in flight
	inFlight        []statement        // sent, without a reply yet
	batchesInFlight int                // of the statements inFlight
	statementCount  uint64             // of all statements, sent or queued
	targetTimeout   time.Duration      // the idle timeout that was last requested
	endErr          error              // why the connection has ended

	// Guarded by Store.mu.
	idleTimeout   time.Duration // the server ends the session when it is silent for so long
	leaseCount    int           // leases assigned to it
	lastUsed      time.Time     // when a lease was last assigned to it
	maintainTimer *time.Timer
}

// A statement is a call of a prepared statement, with its parameters in binary form.
type statement struct {
	name   string
	params [][]byte

	// ownTransaction is set for a statement with effects that an error of another statement in its
	// transaction would undo. Advisory locks of a session are not undone.
	ownTransaction bool

	// done is called on the session's goroutine with the first column of the reply, nil for NULL,
	// or with an error: that of the server, or one that matches ErrSessionLost if the session has
	// ended without a reply.
	done func(value []byte, err error)

	// Set by the session.
	queuedAt  time.Time
	endsTx    bool // it is the last of its transaction
	endsBatch bool // it is the last of its batch
}

// binaryFormat is the format of all parameters and columns.
var binaryFormat = []int16{1}

// sendStatement sends a statement. In all cases it is done exactly once.
func (sess *session) sendStatement(st statement) {
	sess.mu.Lock()
	lost := sess.enqueue(st)
	sess.mu.Unlock()
	if lost != nil {
		st.done(nil, lost)
	}
}

// enqueue adds a statement to the queue, and sends the queue if few batches are in flight. It
// returns an error if the session has ended. The caller holds sess.mu.
func (sess *session) enqueue(st statement) error {
	if sess.endErr != nil {
		return sess.endErr
	}
	st.queuedAt = time.Now()
	sess.queue = append(sess.queue, st)
	sess.statementCount++
	sess.sendBatch()
	return nil
}

// sendBatch sends the statements at the head of the queue, if there are any and few batches are in
// flight. The caller holds sess.mu.
func (sess *session) sendBatch() {
	n := min(len(sess.queue), maxBatch)
	if n == 0 || sess.batchesInFlight >= maxBatchesInFlight {
		return
	}
	batch := sess.queue[:n]
	for i := range batch {
		st := &batch[i]
		st.endsBatch = i == n-1
		st.endsTx = st.endsBatch || st.ownTransaction || batch[i+1].ownTransaction
		sess.frontend.SendBind(&pgproto3.Bind{
			PreparedStatement: st.name, ParameterFormatCodes: binaryFormat,
			Parameters: st.params, ResultFormatCodes: binaryFormat,
		})
		sess.frontend.SendExecute(&pgproto3.Execute{})
		if st.endsTx {
			sess.frontend.SendSync(&pgproto3.Sync{})
		}
	}
	sess.inFlight = append(sess.inFlight, batch...)
	sess.queue = slices.Delete(sess.queue, 0, n)
	sess.batchesInFlight++
	sess.flushWrites(writeTimeout)
}

// flushWrites writes the statements in the buffer. If that fails, the reader gets the error from
// the connection. The caller holds sess.mu.
func (sess *session) flushWrites(bound time.Duration) {
	// A deadline cannot be set if the connection has ended.
	_ = sess.conn.SetWriteDeadline(time.Now().Add(bound))
	if err := sess.frontend.Flush(); err != nil {
		disconnect(sess.conn) // The reader reports it.
	}
}

// readReplies distributes the replies until the connection ends.
func (sess *session) readReplies() {
	var value []byte    // of the current statement
	var values [][]byte // of the completed statements of the current transaction
	var refusal error   // of the transaction
	for {
		message, err := sess.frontend.Receive()
		if err != nil {
			sess.handleEnd(err)
			return
		}
		switch m := message.(type) {
		case *pgproto3.DataRow:
			if len(m.Values) > 0 && m.Values[0] != nil {
				value = append(make([]byte, 0, 8), m.Values[0]...)
			}
		case *pgproto3.CommandComplete:
			values = append(values, value)
			value = nil
		case *pgproto3.ErrorResponse:
			refusal = pgconn.ErrorResponseToPgError(m)
			if m.SeverityUnlocalized == "FATAL" || m.SeverityUnlocalized == "PANIC" {
				sess.handleEnd(refusal)
				return
			}
		case *pgproto3.NotificationResponse:
			if sess.onNotification != nil {
				sess.onNotification(m.Payload)
			}
		case *pgproto3.ReadyForQuery:
			sess.finishTransaction(values, refusal)
			value, values, refusal = nil, values[:0], nil
		}
	}
}

// finishTransaction handles the end of the oldest transaction in flight. values are those of the
// statements that were completed. After an error the server has skipped the statements behind the
// one that failed: they are sent again.
func (sess *session) finishTransaction(values [][]byte, refusal error) {
	sess.mu.Lock()
	n := 1 + slices.IndexFunc(sess.inFlight, func(st statement) bool { return st.endsTx })
	if n == 0 {
		sess.mu.Unlock()
		return // The server sent an unexpected reply.
	}
	finished := slices.Clone(sess.inFlight[:n])
	sess.inFlight = slices.Delete(sess.inFlight, 0, n)
	if finished[n-1].endsBatch {
		sess.batchesInFlight--
	}
	if len(values) >= n && refusal != nil {
		values = nil // The end of the transaction failed.
	} else if len(values) < n {
		failed := len(values) + 1
		sess.queue = slices.Insert(sess.queue, 0, finished[failed:]...)
		finished = finished[:failed]
	}
	sess.sendBatch()
	sess.mu.Unlock()
	for i, st := range finished {
		if i < len(values) {
			st.done(values[i], nil)
		} else {
			st.done(nil, refusal)
		}
	}
}

// handleEnd ends the session, for the reader. The leases on it end first, so that a caller that
// gets a reply finds them gone.
func (sess *session) handleEnd(cause error) {
	disconnect(sess.conn) // It may be closed already.
	sess.mu.Lock()
	sess.endErr = fmt.Errorf("%w: %w", errSessionLost, cause)
	pending := slices.Concat(sess.inFlight, sess.queue)
	sess.inFlight, sess.queue = nil, nil
	sess.mu.Unlock()

	notify := sess.onEnded(cause)
	for _, st := range pending {
		st.done(nil, sess.endErr)
	}
	notify()
}

// progress returns how long the oldest statement has waited for its reply, and how many statements
// there were.
func (sess *session) progress(now time.Time) (waited time.Duration, count uint64) {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if len(sess.inFlight) > 0 {
		waited = now.Sub(sess.inFlight[0].queuedAt)
	}
	return waited, sess.statementCount
}

// overdue reports whether the session is in doubt: it gets no new lock.
func (sess *session) overdue(now time.Time) bool {
	waited, _ := sess.progress(now)
	return waited >= replyTimeout
}

// closeGracefully ends the session in good order: the server releases the locks and then closes the
// connection, and the reader waits for that.
func (sess *session) closeGracefully() {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	sess.frontend.Send(&pgproto3.Terminate{})
	sess.flushWrites(closeTimeout)
	_ = sess.conn.SetReadDeadline(time.Now().Add(closeTimeout)) // As in flushWrites.
}

// closeNow ends a session that is in doubt.
func (sess *session) closeNow() { disconnect(sess.conn) }

// errSessionLost is in the errors of statements without a reply, because the session has ended.
var errSessionLost = errors.New("the session that the locks live in has ended")

// errUnknownReply is the error for a reply of the server that is not understood.
var errUnknownReply = errors.New("the server's answer is not understood")

// wrapErr wraps the error of a statement. After every error that the server has sent it is certain
// that no key was acquired: the store has unlocked it since.
func (s *engine) wrapErr(err error) error {
	state := pgclient.SQLState(err)
	if err == nil || errors.Is(err, errSessionLost) {
		return err
	}
	if state == "22003" || state == "2200H" {
		return fmt.Errorf("%w: no token above the last one is left", driver.ErrInvalid)
	}
	err = pgclient.InOneLine(err)
	if state == "HF004" {
		return fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	}
	if advice := s.adviceFor(state); advice != "" {
		err = fmt.Errorf("%w: %s", err, advice)
	}
	switch {
	case pgclient.IsServerNotReady(state):
		return &driver.RetryError{Err: err}
	case state != "":
		return driver.NotApplied(err)
	}
	return err
}

// adviceFor returns what to do about an error.
func (s *engine) adviceFor(state string) string {
	switch state {
	case "42P01":
		return fmt.Sprintf("the sequence of tokens %s is not there: Store.Migrate creates it", s.options.TokenSequence)
	case "42501":
		return "the user needs USAGE, SELECT and UPDATE on the sequence of tokens, or may not do what was asked"
	case lockTableFull:
		return "the server's lock table is full: hold fewer locks, or raise max_locks_per_transaction"
	case "53300":
		return "the server has no connection left: advisory locks need one of their own for each process"
	case "57P03":
		return "the server is starting or stopping"
	}
	return ""
}

func (s *engine) Connections() ([]*os.File, error) {
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

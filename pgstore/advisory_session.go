package pgstore

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// How long a session may leave a statement unanswered before no new lock is put
// on it, how long a write may take, for which a caller is kept, and how long one
// that leaves waits for the server to let go.
const (
	answerBound = 5 * time.Second
	writeBound  = time.Second
	leaveBound  = time.Second
)

// A session is a connection that advisory locks live on. Statements are sent by
// whoever has one and answered in order; a goroutine that reads all the time
// hands out the answers, and so sees at once when the connection ends.
type session struct {
	conn    net.Conn
	pid     uint32
	started string // when, as the server tells it

	ended func(cause error) (tell func()) // what follows from the end; tell is called when all is settled
	heard func(payload string)            // passes a notification on; nil where none comes

	wire  sync.Mutex // guards front's writing side: statements are listed in the order in which they are sent
	front *pgproto3.Frontend

	list    sync.Mutex  // guards the next three; never held while something is written
	waiting []statement // sent and not answered
	count   uint64      // of all that were sent
	lost    error       // why the connection has ended

	raising sync.Mutex
	target  time.Duration // the limit that was last asked for; guarded by raising

	// Guarded by AdvisoryStore.mu.
	limit  time.Duration // the server ends the session when it is silent for so long
	holds  int           // claims on it
	used   time.Time     // when a claim was last put on it
	tick   *time.Timer
	looked uint64 // how many statements had been sent at the last look
}

// A statement is one that was prepared, with its parameters in binary form.
type statement struct {
	name   string
	params [][]byte
	sent   time.Time

	// done is called on the session's goroutine with the first column of the
	// answer, nil for NULL, or with an error: that of the server, or one that
	// matches errSessionLost if the session has ended without an answer.
	done func(value []byte, err error)
}

// errSessionLost is in the errors of statements to which the answer was lost.
var errSessionLost = errors.New("the session that the locks live in has ended")

// binaryFormat is that of all parameters and columns.
var binaryFormat = []int16{1}

// send sends a statement. Whatever happens, done is called once.
func (on *session) send(st statement) {
	on.wire.Lock()
	st.sent = time.Now()
	if lost := on.enlist(st); lost != nil {
		on.wire.Unlock()
		st.done(nil, lost)
		return
	}
	defer on.wire.Unlock()
	on.front.SendBind(&pgproto3.Bind{
		PreparedStatement: st.name, ParameterFormatCodes: binaryFormat, Parameters: st.params, ResultFormatCodes: binaryFormat,
	})
	on.front.SendExecute(&pgproto3.Execute{})
	on.front.SendSync(&pgproto3.Sync{})
	on.flush(writeBound)
}

func (on *session) enlist(st statement) error {
	on.list.Lock()
	defer on.list.Unlock()
	if on.lost == nil {
		on.waiting = append(on.waiting, st)
		on.count++
	}
	return on.lost
}

// flush writes what is to be sent. If it cannot, the reader learns of it from
// the connection. The caller holds on.wire.
func (on *session) flush(bound time.Duration) {
	// A deadline that cannot be set is that of a connection that has ended.
	_ = on.conn.SetWriteDeadline(time.Now().Add(bound))
	if err := on.front.Flush(); err != nil {
		_ = on.conn.Close() // The reader reports it.
	}
}

// read hands out the answers until the connection ends.
func (on *session) read() {
	var value []byte
	var refusal error
	for {
		message, err := on.front.Receive()
		if err != nil {
			on.over(err)
			return
		}
		switch m := message.(type) {
		case *pgproto3.DataRow:
			if len(m.Values) > 0 && m.Values[0] != nil {
				value = append(make([]byte, 0, 8), m.Values[0]...)
			}
		case *pgproto3.ErrorResponse:
			refusal = pgconn.ErrorResponseToPgError(m)
			if m.SeverityUnlocalized == "FATAL" || m.SeverityUnlocalized == "PANIC" {
				on.over(refusal)
				return
			}
		case *pgproto3.NotificationResponse:
			if on.heard != nil {
				on.heard(m.Payload)
			}
		case *pgproto3.ReadyForQuery:
			on.answered()(value, refusal)
			value, refusal = nil, nil
		}
	}
}

// answered takes the statement that is answered now off the list.
func (on *session) answered() func([]byte, error) {
	on.list.Lock()
	defer on.list.Unlock()
	if len(on.waiting) == 0 {
		return func([]byte, error) {} // The server speaks out of turn.
	}
	done := on.waiting[0].done
	on.waiting[0] = statement{}
	on.waiting = on.waiting[1:]
	return done
}

// over ends the session, for the reader. What lives on it ends first, so that
// whoever gets an answer finds it gone.
func (on *session) over(cause error) {
	_ = on.conn.Close() // It may be closed already.
	on.list.Lock()
	on.lost = fmt.Errorf("%w: %w", errSessionLost, cause)
	waiting := on.waiting
	on.waiting = nil
	on.list.Unlock()

	tell := on.ended(cause)
	for _, st := range waiting {
		st.done(nil, on.lost)
	}
	tell()
}

// progress reports for how long the oldest answer has been awaited, and how many
// statements were sent.
func (on *session) progress(now time.Time) (late time.Duration, sent uint64) {
	on.list.Lock()
	defer on.list.Unlock()
	if len(on.waiting) > 0 {
		late = now.Sub(on.waiting[0].sent)
	}
	return late, on.count
}

// overdue reports whether the session is in doubt: no new lock is put on it.
func (on *session) overdue(now time.Time) bool {
	late, _ := on.progress(now)
	return late >= answerBound
}

// leave ends the session in good order: the server lets go of the locks and
// then closes the connection, which the reader waits for.
func (on *session) leave() {
	on.wire.Lock()
	defer on.wire.Unlock()
	on.front.Send(&pgproto3.Terminate{})
	on.flush(leaveBound)
	_ = on.conn.SetReadDeadline(time.Now().Add(leaveBound)) // As in flush.
}

// abandon ends a session that is in doubt.
func (on *session) abandon() { _ = on.conn.Close() }

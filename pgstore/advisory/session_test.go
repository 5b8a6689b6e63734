//go:build unix

package advisory

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// A scriptedServer is the other end of a session. It receives what a test wants to see, and sends
// what the test says.
type scriptedServer struct {
	t    *testing.T
	conn net.Conn
	wire *pgproto3.Backend
	sent chan string // the names of the statements that have arrived, and ";" for a Sync
	sess *session
}

func startScripted(t *testing.T) *scriptedServer {
	ours, theirs := net.Pipe()
	sess := &session{conn: ours, frontend: pgproto3.NewFrontend(ours, ours)}
	sess.onEnded = func(error) func() { return func() {} }
	s := &scriptedServer{t, theirs, pgproto3.NewBackend(theirs, theirs), make(chan string, 100), sess}
	go sess.readReplies()
	go func() {
		defer close(s.sent)
		for {
			message, err := s.wire.Receive()
			if err != nil {
				return
			}
			switch m := message.(type) {
			case *pgproto3.Bind:
				s.sent <- m.PreparedStatement
			case *pgproto3.Sync:
				s.sent <- ";"
			}
		}
	}()
	return s
}

// send sends statements with these names from goroutines of their own, one after the other, and
// returns the log of what was done. A name that ends in "!" has a transaction of its own.
func (s *scriptedServer) send(log *[]string, names ...string) {
	for _, name := range names {
		st := statement{name: name, ownTransaction: name[len(name)-1] == '!'}
		st.done = func(value []byte, err error) {
			var refused *pgconn.PgError
			switch {
			case errors.Is(err, errSessionLost):
				*log = append(*log, name+" lost")
			case errors.As(err, &refused):
				*log = append(*log, name+" refused")
			default:
				*log = append(*log, name+" "+string(value))
			}
		}
		go s.sess.sendStatement(st)
		synctest.Wait()
	}
}

// received returns the names of the statements that have arrived since, and a ";" after each
// transaction.
func (s *scriptedServer) received() (names string) {
	synctest.Wait()
	for len(s.sent) > 0 {
		names += <-s.sent
	}
	return names
}

// reply sends the reply to a transaction: for each letter a value, or for "!" the error after which
// the rest is skipped.
func (s *scriptedServer) reply(letters string) {
	for _, letter := range letters {
		if letter == '!' {
			s.wire.Send(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "53200"})
			continue
		}
		s.wire.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(string(letter))}})
		s.wire.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
	}
	s.wire.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if err := s.wire.Flush(); err != nil {
		s.t.Fatal(err)
	}
	synctest.Wait()
}

func (s *scriptedServer) want(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Statements that come while two batches are in flight are one transaction. Those with effects that
// the error of another would undo have one of their own.
func TestStatementBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startScripted(t)
		var log []string
		s.send(&log, "a", "b", "c", "d", "e!", "f!", "g", "h")
		s.want("sent at once", s.received(), "a;b;")
		s.reply("1")
		s.want("sent after the first reply", s.received(), "cd;e!;f!;gh;")
		s.send(&log, "i")
		s.reply("2")
		s.want("sent after the second reply", s.received(), "i;")
		s.send(&log, "j")
		for _, letters := range []string{"34", "5", "6"} {
			s.reply(letters)
		}
		s.want("done before the end of the batch", fmt.Sprint(log), "[a 1 b 2 c 3 d 4 e! 5 f! 6]")
		s.reply("78")
		s.want("sent after the batch", s.received(), "j;")
		s.reply("9")
		s.reply("0")
		s.want("done", fmt.Sprint(log[6:]), "[g 7 h 8 i 9 j 0]")
		if waited, n := s.sess.progress(time.Now()); waited != 0 || n != 10 {
			t.Errorf("a statement has waited for %v, and %d were sent, want none and 10", waited, n)
		}
		s.conn.Close()
		synctest.Wait()
	})
}

// An error concerns one statement: those before it in the transaction have their results, and those
// behind it, which the server has skipped, are sent again. An error at the end of a transaction
// concerns all of it.
func TestErrorInBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startScripted(t)
		var log []string
		s.send(&log, "a", "b", "c", "d", "e", "f")
		s.received()
		s.reply("1")
		s.want("sent together", s.received(), "cdef;")
		s.send(&log, "g")
		s.reply("2")
		s.want("sent meanwhile", s.received(), "g;")
		s.reply("3!")
		s.want("sent again", s.received(), "ef;")
		s.reply("4")
		s.reply("56!")
		s.want("done", fmt.Sprint(log), "[a 1 b 2 c 3 d refused g 4 e refused f refused]")
		s.conn.Close()
		synctest.Wait()
	})
}

// Every statement is done when the session ends, sent or not, and so is one that comes later.
func TestBatchOfEndedSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startScripted(t)
		var log []string
		s.send(&log, "a", "b", "c", "d")
		s.received()
		s.reply("1")
		s.received()
		time.Sleep(3 * time.Second)
		if waited, _ := s.sess.progress(time.Now()); waited != 3*time.Second {
			t.Errorf("the oldest statement has waited for %v, want 3s", waited)
		}
		s.send(&log, "e")
		s.conn.Close()
		synctest.Wait()
		s.send(&log, "f")
		s.want("done", fmt.Sprint(log), "[a 1 b lost c lost d lost e lost f lost]")
	})
}

// On the server, too, an error undoes no lock and no unlocking of other statements in its
// transaction.
func TestErrorInBatchAtServer(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.Postgres().Addr, keysOf(t))
	s.statements["holdfast_fail"] = "SELECT 1 / $1::int"
	first, second, third := keyIn(t, s, "first"), keyIn(t, s, "second"), keyIn(t, s, "third")
	req := pgtest.Request("first", time.Minute)
	if res, err := s.Acquire(t.Context(), req); err != nil || !res.Granted {
		t.Fatal(res, err)
	}
	s.mu.Lock()
	sess := s.sessions[0]
	s.mu.Unlock()

	type result struct {
		name  string
		value []byte
		state string
	}
	results := make(chan result, 4)
	queued := func(name string, st statement) statement {
		st.queuedAt = time.Now()
		st.done = func(value []byte, err error) { results <- result{name, value, pgclient.SQLState(err)} }
		return st
	}
	sess.mu.Lock()
	sess.queue = append(sess.queue,
		queued("unlock", (&lease{key: first}).unlockKeyStatement(nil)),
		queued("try", (&lease{key: second}).tryLockStatement(nil)),
		queued("fail", statement{name: "holdfast_fail", params: [][]byte{{0, 0, 0, 0}}}),
		queued("later", (&lease{key: third}).tryLockStatement(nil)))
	sess.sendBatch()
	sess.mu.Unlock()
	var got []string
	for range 4 {
		r := <-results
		got = append(got, fmt.Sprint(r.name, " ", len(r.value), " ", r.state))
	}
	if want := []string{"unlock 1 ", "try 8 ", "fail 0 22012", "later 8 "}; !slices.Equal(got, want) {
		t.Errorf("the results are %q, want %q", got, want)
	}
	held := map[Key]bool{}
	for lock, err := range s.Locks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		held[lock.Key] = true
	}
	if held[first] || !held[second] || !held[third] {
		t.Errorf("held are the first %v, the second %v, the third %v; want the latter two", held[first], held[second], held[third])
	}
}

// Connections duplicates those that locks live on. A duplicate keeps a session that is
// closed without a word, but not one that its store gives up.
func TestConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Postgres()
	opts := keysOf(t)
	s := open(t, server.Addr, opts)
	if files, err := s.Connections(); err != nil || len(files) != 0 {
		t.Errorf("%d connections before there is a lock, %v", len(files), err)
	}
	req := grant(t, s, "name", time.Minute)
	files, err := s.Connections()
	if err != nil || len(files) != 1 {
		t.Fatalf("%d connections, %v, want one", len(files), err)
	}
	defer files[0].Close()

	// As if the process had been killed.
	s.mu.Lock()
	conn := s.sessions[0].conn
	s.mu.Unlock()
	if err := transport(conn).Close(); err != nil {
		t.Fatal(err)
	}
	other := open(t, server.Addr, opts)
	for range 20 {
		refused(t, other, "name")
	}
	if err := files[0].Close(); err != nil {
		t.Fatal(err)
	}
	takes(t, other, "name")
	_, _ = s.Release(t.Context(), olddriver.ReleaseRequest{Name: "name", Owner: req.Owner}) // it is lost

	// Once given up, the session ends at the server, also if its connection has a duplicate.
	if files, err = other.Connections(); err != nil || len(files) != 1 {
		t.Fatalf("%d connections, %v, want one", len(files), err)
	}
	defer files[0].Close()
	other.mu.Lock()
	sess := other.sessions[0]
	other.mu.Unlock()
	sess.closeNow()
	takes(t, s, "name")
}

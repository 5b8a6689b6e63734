package advisory

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// statementTimeout bounds a statement that does not wait for a lock. A session that takes longer
	// is given up.
	statementTimeout = 5 * time.Second

	// lockTimeout bounds one statement that waits for a lock, so that its snapshot does not get old.
	// The server counts it.
	lockTimeout = 10 * time.Second

	// maxIdleTimeout is the greatest idle_session_timeout that the server takes, rounded down.
	maxIdleTimeout = 24 * 24 * time.Hour
)

// errSessionLost means that the connection of a session ended before the reply.
var errSessionLost = errors.New("the connection to the server was lost")

// A session is a connection with the locks that its server process has. One goroutine uses the
// connection: it sends what callers have queued, all of it in one statement, and reads while there is
// nothing to send, so that it sees the end of the connection at once.
type session struct {
	store   *Store
	conn    *pgx.Conn
	pid     uint32
	onEnd   func()        // is called with store.mu locked when the session has ended
	started string        // backend_start: with the pid, it names the server process for good
	idle    time.Duration // its idle_session_timeout; used by its goroutine alone

	mu     sync.Mutex
	queue  []*operation
	wake   context.CancelFunc // ends the reading, nil while a statement is under way
	lost   error              // set once: the connection is no more
	closed bool               // by the store
}

// An operation is what a caller wants of a session.
type operation struct {
	verb  verb
	key   Key
	ttl   time.Duration // that the server's timeout has to allow for
	floor int64         // of the token

	ended   func() bool            // of a wait: nobody wants the key any more
	granted func(token int64) bool // of a wait: takes the key, or does not want it any more

	// Set before done is closed.
	value int64 // try: the token; unlock: 1 if the key was locked
	ok    bool  // there is a value; a try that finds the key taken has none
	err   error
	done  chan struct{}
}

type verb uint8

const (
	ping   verb = iota // only tells that the session is alive
	try                // lock the key if it is free
	unlock             // unlock it
	wait               // lock it when it becomes free; nothing else is sent then
)

// send queues an operation. Its done is closed in any case.
func (s *session) send(op *operation) *operation {
	op.done = make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != nil {
		op.err = driver.NotApplied(s.lost)
		close(op.done)
		return op
	}
	s.queue = append(s.queue, op)
	if s.wake != nil {
		s.wake()
	}
	return op
}

// settle is how long a session is idle before it watches its connection: to end a watch costs as much
// as a statement, which those that lock in a loop do not pay.
const settle = 20 * time.Millisecond

// run sends operations until the connection ends or is closed.
func (s *session) run() {
	var failed error
	for failed == nil {
		s.mu.Lock()
		ops := s.queue
		s.queue = nil
		if len(ops) == 0 && s.closed {
			failed = driver.ErrClosed
		}
		silence := s.idle / 2 // The server ends a session that is silent for as long as idle.
		if silence == 0 {
			silence = time.Minute
		}
		ctx, cancel := context.WithTimeout(context.Background(), silence)
		s.wake = nil
		if len(ops) == 0 {
			s.wake = cancel
		}
		s.mu.Unlock()
		switch {
		case failed != nil:
		case len(ops) > 0:
			if failed = s.execute(ops); failed != nil {
				s.end(failed)
			}
			for _, op := range ops {
				close(op.done)
			}
		default:
			settled := time.NewTimer(settle)
			select {
			case <-ctx.Done(): // The next operation came soon.
			case <-settled.C:
				_, err := s.conn.WaitForNotification(ctx)
				if err != nil && (ctx.Err() == nil || s.conn.IsClosed()) {
					failed = fmt.Errorf("%w: %w", errSessionLost, err)
				} else if errors.Is(ctx.Err(), context.DeadlineExceeded) {
					failed = s.execute([]*operation{{verb: ping}})
				}
			}
			settled.Stop()
		}
		cancel()
	}
	if s.lost == nil { // which this goroutine alone sets
		s.end(failed)
	}
}

// close makes run end after what is queued.
func (s *session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.wake != nil {
		s.wake()
	}
}

// end closes the connection. All locks of the session end with it.
func (s *session) end(cause error) {
	s.mu.Lock()
	s.lost = cause
	ops := s.queue
	s.queue = nil
	s.mu.Unlock()
	disconnect(s.conn)
	s.store.onSessionEnded(s)
	for _, op := range ops {
		op.err = driver.NotApplied(cause) // It was never sent.
		close(op.done)
	}
}

// execute carries out operations. It returns an error if the session cannot be used any more.
func (s *session) execute(ops []*operation) error {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	if op := ops[0]; op.verb == wait {
		op.err = s.wait(op)
		if errors.Is(op.err, errSessionLost) {
			return op.err
		}
		return nil
	}
	err := s.executeAll(ctx, ops)
	if err == nil {
		return nil
	}
	for _, op := range ops {
		op.ok, op.err = false, err
	}
	if errors.Is(err, errSessionLost) || s.conn.IsClosed() || ctx.Err() != nil {
		for _, op := range ops {
			op.err = fmt.Errorf("%w: %w", errSessionLost, err)
		}
		return ops[0].err
	}
	// The server has refused the statement, perhaps halfway. None of the keys was to stay locked in
	// any case but that of a try, so all of them are unlocked, and nothing was applied.
	for _, op := range ops {
		if op.verb == ping {
			continue
		}
		if lost := s.unlockAll(ctx, op.key); lost != nil {
			return fmt.Errorf("%w: %w", errSessionLost, lost)
		}
		if op.verb == unlock {
			op.value, op.ok, op.err = 1, true, nil
		}
	}
	return nil
}

// batchStatement locks and unlocks keys, in their order. A key that is locked elsewhere has no value.
// A ping, for which lock is NULL, reads the server process.
const batchStatement = `SELECT CASE WHEN lock IS NULL THEN pg_catalog.pg_backend_pid()::bigint
	WHEN NOT lock AND pair THEN pg_catalog.pg_advisory_unlock((key >> 32)::int, key::bit(32)::int)::int::bigint
	WHEN NOT lock THEN pg_catalog.pg_advisory_unlock(key)::int::bigint
	WHEN pair THEN CASE WHEN pg_catalog.pg_try_advisory_lock((key >> 32)::int, key::bit(32)::int) THEN %[1]s END
	WHEN pg_catalog.pg_try_advisory_lock(key) THEN %[1]s END
FROM ROWS FROM (pg_catalog.unnest($1::bigint[]), pg_catalog.unnest($2::bool[]), pg_catalog.unnest($3::bool[])) AS op (key, pair, lock)`

func (s *session) executeAll(ctx context.Context, ops []*operation) error {
	var keys []int64
	var pairs []bool
	var locks []*bool
	longest := time.Duration(0)
	for _, op := range ops {
		longest = max(longest, op.ttl)
		keys, pairs = append(keys, op.key.bits), append(pairs, op.key.pair)
		lock := op.verb == try
		if locks = append(locks, &lock); op.verb == ping {
			locks[len(locks)-1] = nil
		}
	}
	if err := s.raiseIdleTimeout(ctx, longest); err != nil {
		return err
	}
	rows, err := s.conn.Query(ctx, s.store.batch, keys, pairs, locks)
	if err != nil {
		return err
	}
	for i := 0; rows.Next() && i < len(ops); i++ {
		var value *int64
		if err := rows.Scan(&value); err != nil {
			return err
		}
		if ops[i].ok = value != nil; value != nil {
			ops[i].value = *value
		}
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return err
	}
	for _, op := range ops {
		if op.verb == ping && op.value != int64(s.pid) {
			return fmt.Errorf("%w: another server process replies, so there is a pooler of transactions in the path", errSessionLost)
		}
		if op.verb == try && op.ok && op.value < op.floor {
			if op.value, op.err = s.raiseToken(ctx, op.floor); op.err != nil {
				op.ok = false
				if err := s.unlockAll(ctx, op.key); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// unlockAll unlocks a key until it is not locked any more: a statement that failed may have locked it.
func (s *session) unlockAll(ctx context.Context, key Key) error {
	for locked := true; locked; {
		statement := "SELECT pg_catalog.pg_advisory_unlock(" + key.sqlLiteral() + ")"
		if err := s.conn.QueryRow(ctx, statement, pgx.QueryExecModeSimpleProtocol).Scan(&locked); err != nil {
			return err
		}
	}
	return nil
}

// raiseIdleTimeout sets the time after which the server ends a session whose process hangs, to the
// longest TTL that the session has had. TCP has the same, for a network that is cut.
func (s *session) raiseIdleTimeout(ctx context.Context, ttl time.Duration) error {
	ttl = min(max(ttl, time.Second), maxIdleTimeout)
	if ttl <= s.idle {
		return nil
	}
	const statement = "SELECT pg_catalog.set_config(name, CASE name WHEN 'tcp_keepalives_idle' THEN $2::text ELSE $1::text END, false)" +
		" FROM pg_catalog.pg_settings WHERE name IN ('idle_session_timeout', 'tcp_user_timeout', 'tcp_keepalives_idle')"
	ms := (ttl + time.Millisecond - 1).Milliseconds()
	seconds := min((ms+999)/1000, 32767) // the most that Linux accepts
	_, err := s.conn.Exec(ctx, statement, strconv.FormatInt(ms, 10), strconv.FormatInt(seconds, 10))
	if err == nil {
		s.idle = ttl
	}
	return err
}

// wait locks a key that is taken: it blocks until the server grants the key, or nobody wants it any
// more. After an error nothing is locked, or the session is lost.
func (s *session) wait(op *operation) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	if err := s.raiseIdleTimeout(ctx, op.ttl); err != nil {
		return err
	}
	statement := fmt.Sprintf("SELECT CASE WHEN pg_catalog.pg_advisory_lock(%s) IS NOT NULL THEN %s END",
		op.key.sqlLiteral(), s.store.drawToken)
	for !op.ended() {
		var token int64
		waiting, cancel := context.WithTimeout(context.Background(), lockTimeout+statementTimeout)
		err = s.conn.QueryRow(waiting, statement, pgx.QueryExecModeSimpleProtocol).Scan(&token)
		cancel()
		if err == nil && op.granted(token) {
			return nil
		}
		if s.conn.IsClosed() {
			return fmt.Errorf("%w: %w", errSessionLost, err)
		}
		// A wait that was cut short may have got the lock all the same.
		unlocking, cancel := context.WithTimeout(context.Background(), statementTimeout)
		unlocked := s.unlockAll(unlocking, op.key)
		cancel()
		if unlocked != nil {
			return fmt.Errorf("%w: %w", errSessionLost, unlocked)
		}
		if state := sqlState(err); state != "" && state != lockNotAvailable && state != queryCanceled && state != deadlockDetected {
			return err
		}
	}
	return errWaitEnded
}

var errWaitEnded = errors.New("nobody waits any more")

// cancel ends a statement that waits.
func (s *session) cancel() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.PgConn().CancelRequest(ctx) // If it fails, the statement ends by lock_timeout.
}

// Connections returns duplicates of the descriptors of the connections of sessions that hold locks
// now. The caller closes them, and must neither read nor write them.
//
// It is for programs that hand their locks to a child. The server ends a session, and with it the
// locks, when no process has its connection open any more. A process that was given a duplicate
// beforehand keeps the locks in force if this one is killed, until it closes the duplicate, or
// until the server's idle_session_timeout (PostgreSQL 14 and later). A duplicate does not keep a
// connection that the server or the network ends. On Windows Connections returns an error.
func (s *Store) Connections() (files []*os.File, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[*session]bool{}
	for _, e := range s.entries {
		if e.state != held || seen[e.session] {
			continue
		}
		seen[e.session] = true
		conn := transport(e.session.conn.PgConn().Conn())
		filer, ok := conn.(interface{ File() (*os.File, error) })
		if !ok {
			err = fmt.Errorf("a %T has no descriptor", conn)
		} else if f, failed := filer.File(); failed != nil {
			err = failed
		} else {
			files = append(files, f)
		}
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, fmt.Errorf("duplicate a connection: %w", err)
	}
	return files, nil
}

// transport returns the connection below TLS.
func transport(conn net.Conn) net.Conn {
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return over.NetConn()
	}
	return conn
}

// disconnect closes a connection, at the server too if another process has a duplicate.
func disconnect(conn *pgx.Conn) {
	if half, ok := transport(conn.PgConn().Conn()).(interface{ CloseWrite() error }); ok && !conn.IsClosed() {
		_ = half.CloseWrite() // The other end may have closed it.
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // as above
}

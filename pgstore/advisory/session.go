package advisory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batch"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

const (
	// batchTimeout bounds a batch, with the time to connect. A connection that takes longer is
	// given up. A caller with inlineTime left sends on its own goroutine: it may have to wait until
	// then, which is less than a second longer than it has. callTimeout bounds a call without a
	// deadline.
	batchTimeout = 3800 * time.Millisecond
	inlineTime   = 2900 * time.Millisecond
	callTimeout  = inlineTime * 10 / 9 // so that with inlineTime a caller sends the calls of others, too

	// lockTimeout bounds one statement that waits for a lock, so that its snapshot does not get
	// old.
	lockTimeout = 10 * time.Second

	// failurePause is how long a place lasts that cannot wait in the server. Its owner then tries
	// again, which is not to be a burden for a server without connections.
	failurePause = 250 * time.Millisecond

	// lookInterval is how often an idle connection is looked at, for lookTime.
	lookInterval = 20 * time.Millisecond
	lookTime     = 100 * time.Microsecond

	// idleMargin is by how much idle_session_timeout exceeds the longest TTL, which is maxIdle at
	// most: the server takes little more.
	idleMargin = time.Second
	maxIdle    = 24 * 24 * time.Hour
)

// A session is a connection with the locks that its server process has. It connects when it is
// used, and again after a loss.
type session struct {
	store *Store
	queue batch.Queue[*call]
	entry *entry // of a waiter: what it waits for or has, nil if it is spare; locked by Store.mu

	mu      sync.Mutex    // locked by what uses the fields below
	conn    *pgx.Conn     // nil if there is none
	pid     uint32        // of the server process
	process string        // identifies that for good
	idle    time.Duration // idle_session_timeout
	used    time.Time     // when the last statement was sent
}

// A call asks a session to try or to unlock the key of an entry, or only whether it is alive.
type call struct {
	entry *entry          // nil: only that
	req   *driver.Request // of a try
	ttl   time.Duration   // that the server's timeout has to allow for
	place bool            // it is for a place, which another session has: without a connection it makes one

	value *int64 // the token of a try, 1 of an unlock; nil if the key was taken, or was not locked
	res   driver.Result
	err   error
}

// newSession returns a session without a connection.
func (s *Store) newSession() *session {
	sess := &session{store: s}
	sess.queue = batch.Queue[*call]{
		Send: sess.send, Name: func(*call) string { return "" }, // They are sent one after the other.
		InFlight: 1, Max: 1000, Bound: callTimeout, MinInline: inlineTime,
	}
	return sess
}

// do has a call carried out, and returns an error if it has no result by the deadline of ctx.
func (s *session) do(ctx context.Context, c *call) error {
	if err := s.queue.Do(ctx, c); err != nil {
		return err
	}
	return c.err
}

// send carries out a batch. It does not connect to unlock: without a connection there is nothing
// locked.
func (s *session) send(_ context.Context, calls []*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline := time.Now().Add(batchTimeout)
	if time.Since(s.used) > time.Second { // Looking takes a millisecond.
		s.look()
	}
	keyed, connects, longest := s.store.prepare(calls)
	var err error
	if s.conn == nil && connects {
		err = s.connect(deadline)
	}
	if s.conn != nil {
		if err = errors.Join(s.bound(deadline), s.raiseIdleTimeout(longest)); err == nil {
			err = s.execute(keyed)
		}
		if err != nil {
			err = fmt.Errorf("the connection to the server was lost: %w", err)
			s.lose()
		}
	}
	if err != nil {
		for _, c := range calls {
			c.err = err
		}
	}
	s.store.complete(calls)
}

// bound has what waits for the server fail at a time. The zero Time is none.
func (s *session) bound(deadline time.Time) error {
	return s.conn.PgConn().Conn().SetDeadline(deadline)
}

// statement is the text of a statement that returns a value if a condition is true, and the server
// process.
func statement(condition, value string) string {
	return "SELECT CASE WHEN " + condition + " THEN " + value + " END, pg_catalog.pg_backend_pid()"
}

// execute unlocks and tries the keys of calls in their order, a statement for each, in one round
// trip. It returns an error if the session cannot be used any more. A batch without keys has a
// statement, too: its reply shows that the session is alive.
func (s *session) execute(calls []*call) error {
	var batch pgx.Batch
	for _, c := range calls {
		if parameters, args := c.entry.key.parameters(); c.req != nil {
			batch.Queue(statement("pg_catalog.pg_try_advisory_lock"+parameters, s.store.drawToken), args...)
		} else {
			batch.Queue(statement("pg_catalog.pg_advisory_unlock"+parameters, "1::bigint"), args...)
		}
	}
	if len(calls) == 0 {
		batch.Queue(statement("true", "1::bigint"))
	}
	s.used = time.Now()
	results := s.conn.SendBatch(context.Background(), &batch)
	var values []*int64 // of the statements before one that was refused
	pid := s.pid
	for len(values) < batch.Len() && pid == s.pid {
		var value *int64
		if results.QueryRow().Scan(&value, &pid) != nil {
			break // Close returns the error.
		}
		values = append(values, value)
	}
	refusal := results.Close()
	switch {
	case pid != s.pid:
		return errors.New("another server process replies, so there is a pooler of transactions in the path")
	case refusal != nil && len(values) >= len(calls):
		return refusal
	}
	for i, c := range calls {
		err := refusal
		if i < len(values) {
			if c.value = values[i]; c.value == nil || c.req == nil || *c.value >= c.req.Floor {
				continue
			}
			if *c.value, err = s.store.raiseToken(context.Background(), s.conn, c.req.Floor); err == nil {
				continue
			}
		}
		// The key of a try was to stay locked in the case of success alone. What follows a
		// statement that was refused is not carried out, and a try has locked nothing then.
		if i <= len(values) || c.req == nil {
			if unlockErr := s.unlockAll(c.entry.key); unlockErr != nil {
				return errors.Join(err, unlockErr)
			}
		}
		if c.value = new(int64); c.req != nil {
			c.err = s.store.wrapErr(err)
		}
	}
	return nil
}

// raiseIdleTimeout makes the server end the session when it has heard nothing for a TTL, so that a
// process that hangs does not keep its locks. TCP has the same, for a network that is cut. No other
// timeout of the user ends a statement that waits.
func (s *session) raiseIdleTimeout(ttl time.Duration) error {
	ttl = min(ttl, maxIdle) + idleMargin
	if ttl <= s.idle {
		return nil
	}
	const text = "SELECT pg_catalog.set_config(name, CASE name WHEN 'idle_session_timeout' THEN $1::text WHEN 'tcp_user_timeout' THEN $1::text" +
		" WHEN 'tcp_keepalives_idle' THEN $2::text WHEN 'lock_timeout' THEN $3::text ELSE '0' END, false) FROM pg_catalog.pg_settings WHERE name IN" +
		" ('idle_session_timeout', 'tcp_user_timeout', 'tcp_keepalives_idle', 'lock_timeout', 'statement_timeout', 'transaction_timeout')"
	ms := (ttl + time.Millisecond - 1).Milliseconds()
	seconds := min((ms+999)/1000, 32767) // the most that Linux accepts
	_, err := s.conn.Exec(context.Background(), text, strconv.FormatInt(ms, 10), strconv.FormatInt(seconds, 10),
		strconv.FormatInt(s.store.lockTimeout.Milliseconds(), 10))
	if err == nil {
		s.idle = ttl
	}
	return err
}

// unlockAll unlocks a key until it is not locked any more: a statement that failed may have locked
// it.
func (s *session) unlockAll(key Key) error {
	for locked := true; locked; {
		text := "SELECT pg_catalog.pg_advisory_unlock(" + key.sqlLiteral() + ")"
		if err := s.conn.QueryRow(context.Background(), text, pgx.QueryExecModeSimpleProtocol).Scan(&locked); err != nil {
			return err
		}
	}
	return nil
}

// wait blocks until the server grants the key of a place, ctx ends or the server refuses. It
// reports whether the place is a hold now. The session is lost if its locks are in doubt.
func (s *session) wait(ctx context.Context, e *entry, ttl time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	if s.conn == nil && s.connect(time.Now().Add(batchTimeout)) != nil {
		return false
	}
	err := errors.Join(s.bound(time.Now().Add(batchTimeout)), s.raiseIdleTimeout(ttl))
	text := fmt.Sprintf("SELECT CASE WHEN pg_catalog.pg_advisory_lock(%s) IS NOT NULL THEN %s END", e.key.sqlLiteral(), s.store.drawToken)
	for err == nil && ctx.Err() == nil {
		if err = s.bound(time.Time{}); err != nil {
			break
		}
		s.used = time.Now()
		bounded, cancel := context.WithTimeout(ctx, s.store.lockTimeout+batchTimeout)
		var token int64
		refusal := s.conn.QueryRow(bounded, text, pgx.QueryExecModeSimpleProtocol).Scan(&token)
		cancel()
		if refusal == nil && s.store.grant(e, token, s.used.Add(s.idle)) {
			return true
		}
		// A wait that was cut short may have been granted the key all the same.
		if err = s.bound(time.Now().Add(batchTimeout)); err == nil {
			err = s.unlockAll(e.key)
		}
		if state := pgclient.SQLState(refusal); err == nil && state != "" && state != lockNotAvailable && state != queryCanceled && state != deadlockDetected {
			return false
		}
	}
	if err != nil {
		s.lose()
	}
	return false
}

// look reads what the server has sent on its own account, such as that the session has ended. A
// connection in use need not be looked at.
func (s *session) look() {
	if s.conn == nil || time.Since(s.used) < lookInterval {
		return
	}
	err := s.bound(time.Now().Add(lookTime))
	for err == nil {
		_, err = s.conn.WaitForNotification(context.Background())
	}
	if s.conn.IsClosed() || s.bound(time.Time{}) != nil {
		s.lose()
	}
}

// lose gives up the connection, and with it all locks of the session.
func (s *session) lose() {
	disconnect(s.conn)
	s.conn = nil
	s.store.onLost(s)
}

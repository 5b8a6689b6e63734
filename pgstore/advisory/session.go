package advisory

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// then, which is less than a second longer than it has.
	batchTimeout = 3800 * time.Millisecond
	inlineTime   = 2900 * time.Millisecond

	// lockTimeout bounds one statement that waits for a lock, so that its snapshot does not get
	// old.
	lockTimeout = 10 * time.Second

	// lookInterval is how often an idle connection is looked at, for lookTime.
	lookInterval = 20 * time.Millisecond
	lookTime     = 100 * time.Microsecond

	// idleMargin is by how much idle_session_timeout exceeds the longest TTL. The server takes
	// little more than maxIdle.
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

// A call has a session try or unlock the key of an entry. Without one it asks whether the session
// is alive, and has a reply when all calls before it have one.
type call struct {
	entry    *entry
	function string        // try or unlock
	ttl      time.Duration // the server is to keep the session for so long
	place    time.Duration // of a try

	sent  bool
	res   driver.Result // of a try
	ended bool          // by an unlock
	err   error
}

// A statement calls a function of the server for a key. Its value is none if that returns false.
type statement struct {
	condition string
	key       Key
}

const (
	try    = "pg_catalog.pg_try_advisory_lock%s"
	wait   = "pg_catalog.pg_advisory_lock%s IS NOT NULL" // It returns void.
	unlock = "pg_catalog.pg_advisory_unlock%s"
	none   = -1
)

// newSession returns a session without a connection.
func (s *Store) newSession() *session {
	sess := &session{store: s}
	sess.queue = batch.Queue[*call]{
		Send: sess.send, Name: func(*call) string { return "" }, // They are sent one after the other.
		InFlight: 1, Max: 1000, Bound: batchTimeout, MinInline: inlineTime,
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

// send carries out a batch, in its order and in one round trip. A statement that the server refuses
// fails all attempts of the batch. Any other error costs the session.
func (s *session) send(_ context.Context, calls []*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.store
	var ttl time.Duration
	for _, c := range calls {
		ttl = max(ttl, c.ttl)
	}
	err := s.ready(ttl)
	var statements []statement
	st.mu.Lock()
	for _, c := range calls {
		switch e := c.entry; {
		case e == nil || err != nil:
		case c.function == unlock && e.state == held:
			e.state, c.sent = ending, true
		case c.function == try && (st.keys[e.key] == nil || st.keys[e.key].state == ending):
			// The server would grant a session its own keys again.
			st.keys[e.key], c.sent = e, true
		}
		if c.sent {
			statements = append(statements, statement{c.function, c.entry.key})
		}
	}
	st.mu.Unlock()
	var values []int64
	var refusal error
	if err == nil {
		values, err = s.ask(context.Background(), statements...)
	}
	if len(statements) > 0 && pgclient.SQLState(err) != "" {
		refusal = st.wrapErr(err)
		values, err = nil, s.unlockAll(statements)
	}
	if err != nil && s.conn != nil {
		err = fmt.Errorf("the connection to the server was lost: %w", err)
		s.lose()
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, c := range calls {
		value := int64(none)
		if c.sent && err == nil && refusal == nil {
			value, values = values[0], values[1:]
		}
		switch e := c.entry; {
		case e == nil:
			c.err = err
		case err != nil, c.function == unlock:
			c.ended, c.err = value != none || c.sent && refusal != nil, err
			st.drop(e)
		case refusal != nil:
			c.err = refusal
			st.drop(e)
		case value != none:
			st.grant(e, value, c.ttl)
			c.res = driver.Result{Granted: true, Token: value}
		default:
			if st.keys[e.key] == e {
				delete(st.keys, e.key)
			}
			c.res.Waiting = st.place(e, c)
		}
	}
}

// ready connects, if that is to be done, and bounds what is sent next. It has the server end the
// session when it has heard nothing for a TTL, so that a process that hangs does not keep its
// locks. TCP has the same, for a network that is cut. No other timeout of the user ends a statement
// that waits.
func (s *session) ready(ttl time.Duration) error {
	deadline := time.Now().Add(batchTimeout)
	if time.Since(s.used) > time.Second { // Looking takes a millisecond.
		s.look()
	}
	if s.conn == nil {
		if err := s.connect(deadline); err != nil {
			return err
		}
	}
	idle := min(ttl+idleMargin, maxIdle)
	if err := s.bound(deadline); err != nil || idle <= s.idle {
		return err
	}
	const text = "SELECT pg_catalog.set_config(name, CASE name WHEN 'idle_session_timeout' THEN $1::text WHEN 'tcp_user_timeout' THEN $1::text" +
		" WHEN 'tcp_keepalives_idle' THEN $2::text WHEN 'lock_timeout' THEN $3::text ELSE '0' END, false) FROM pg_catalog.pg_settings WHERE name IN" +
		" ('idle_session_timeout', 'tcp_user_timeout', 'tcp_keepalives_idle', 'lock_timeout', 'statement_timeout', 'transaction_timeout')"
	ms := (idle + time.Millisecond - 1).Milliseconds()
	seconds := min((ms+999)/1000, 32767) // the most that Linux accepts
	_, err := s.conn.Exec(context.Background(), text, strconv.FormatInt(ms, 10), strconv.FormatInt(seconds, 10), strconv.FormatInt(s.store.lockTimeout.Milliseconds(), 10))
	if err == nil {
		s.idle = idle
	}
	return err
}

// bound has what waits for the server fail at a time. The zero Time is none.
func (s *session) bound(deadline time.Time) error {
	return s.conn.PgConn().Conn().SetDeadline(deadline)
}

// ask sends statements in one round trip, or a ping if there are none, and returns their values up
// to one that is refused: the token of a lock, 1 of an unlock. Those behind it are not carried out.
func (s *session) ask(ctx context.Context, statements ...statement) (values []int64, err error) {
	const process = "pg_catalog.pg_backend_pid()"
	var batch pgx.Batch
	for _, st := range statements {
		parameters, arguments := st.key.parameters()
		value := s.store.drawToken
		if st.condition == unlock {
			value = "1::bigint"
		}
		batch.Queue(fmt.Sprintf("SELECT CASE WHEN "+st.condition+" THEN %s ELSE -1::bigint END, "+process, parameters, value), arguments...)
	}
	if len(statements) == 0 {
		batch.Queue("SELECT 1::bigint, " + process)
	}
	s.used = time.Now()
	results := s.conn.SendBatch(ctx, &batch)
	for pid := s.pid; len(values) < batch.Len(); {
		var value int64
		if results.QueryRow().Scan(&value, &pid) != nil {
			break // Close returns the error.
		}
		if values = append(values, value); pid != s.pid {
			_ = results.Close() // The session is over.
			return nil, errors.New("another server process replies, so there is a pooler of transactions in the path")
		}
	}
	return values, results.Close()
}

// unlockAll unlocks the keys of statements until none is locked any more.
func (s *session) unlockAll(statements []statement) error {
	for i := range statements {
		statements[i].condition = unlock
	}
	for {
		values, err := s.ask(context.Background(), statements...)
		if err != nil || !slices.Contains(values, 1) {
			return err
		}
	}
}

// wait blocks until the server grants the key of a place, and reports whether it has. It returns
// without a grant when ctx ends or the server refuses. The session is lost if its locks are in
// doubt.
func (s *session) wait(ctx context.Context, e *entry, ttl time.Duration) (granted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.ready(ttl)
	for state := lockNotAvailable; err == nil && state == lockNotAvailable && ctx.Err() == nil; {
		if err = s.bound(time.Time{}); err != nil {
			break
		}
		bounded, cancel := context.WithTimeout(ctx, s.store.lockTimeout+batchTimeout)
		values, refusal := s.ask(bounded, statement{wait, e.key})
		cancel()
		s.store.mu.Lock()
		if granted = refusal == nil && e.state == waiting; granted {
			s.store.grant(e, values[0], 0)
			e.kept = s.used.Add(s.idle)
		}
		s.store.mu.Unlock()
		if granted {
			return true
		}
		state = pgclient.SQLState(refusal)
		// A wait that was cut short may have been granted the key all the same.
		if err = s.bound(time.Now().Add(batchTimeout)); err == nil {
			err = s.unlockAll([]statement{{unlock, e.key}})
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

// lose gives up the connection, if there is one, and with it all locks of the session. Their owners
// are told.
func (s *session) lose() {
	if s.conn == nil {
		return
	}
	disconnect(s.conn)
	s.conn = nil
	st := s.store
	var lost []owned
	st.mu.Lock()
	st.orphans = append(st.orphans, s.process)
	for _, e := range st.owners {
		if e.session == s && e.state >= held {
			st.drop(e)
			lost = append(lost, e.owned)
		}
	}
	st.mu.Unlock()
	for _, owner := range lost {
		st.notices.Send(owner.name, owner.owner, 0)
	}
}

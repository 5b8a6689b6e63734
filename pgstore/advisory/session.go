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

// A call has a session carry out a statement for an entry. Without one it asks whether the session
// is alive, and has a reply when all calls before it have one.
type call struct {
	statement
	entry *entry
	req   *driver.Request // of a try
	ttl   time.Duration   // the server is to keep the session for so long
	sent  bool            // the statement is sent

	value int64 // the token of a try, 1 of an unlock; none if the key was taken, or was not locked
	res   driver.Result
	err   error
}

// attempt returns the call that tries the key of an entry.
func (e *entry) attempt(req *driver.Request) *call {
	return &call{statement: statement{try, e.key}, entry: e, req: req, ttl: req.TTL}
}

// unlocking returns the call that unlocks the key of a hold.
func (e *entry) unlocking() *call {
	return &call{statement: statement{unlock, e.key}, entry: e, value: none}
}

// none is the value of a statement whose condition is false.
const none = -1

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

// send carries out a batch.
func (s *session) send(_ context.Context, calls []*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ttl time.Duration
	for _, c := range calls {
		ttl = max(ttl, c.ttl)
	}
	err := s.ready(ttl)
	if err == nil {
		s.store.prepare(calls)
		err = s.execute(calls)
	}
	if err != nil {
		if s.conn != nil {
			err = fmt.Errorf("the connection to the server was lost: %w", err)
			s.lose()
		}
		for _, c := range calls {
			c.err = err
		}
	}
	s.store.complete(calls)
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

// A statement calls a function of the server for a key. Its value is none if that returns false.
type statement struct {
	condition string
	key       Key
}

const (
	try    = "pg_catalog.pg_try_advisory_lock%s"
	wait   = "pg_catalog.pg_advisory_lock%s IS NOT NULL" // It returns void.
	unlock = "pg_catalog.pg_advisory_unlock%s"
)

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

// execute carries out the statements of calls in their order, in one round trip. Without any the
// reply shows that the session is alive. A statement that the server refuses fails all attempts of
// the batch. It returns an error if the session cannot be used any more.
func (s *session) execute(calls []*call) error {
	var statements []statement
	var keys []Key
	for _, c := range calls {
		if c.sent {
			statements, keys = append(statements, c.statement), append(keys, c.key)
		}
	}
	values, refusal := s.ask(context.Background(), statements...)
	if refusal != nil && (pgclient.SQLState(refusal) == "" || len(keys) == 0) {
		return refusal
	}
	for _, c := range calls {
		switch {
		case refusal == nil && c.sent:
			c.value, values = values[0], values[1:]
		case refusal != nil && c.condition == try:
			c.err = s.store.wrapErr(refusal)
		case refusal != nil && c.sent:
			c.value = 1
		}
	}
	if refusal == nil {
		return nil
	}
	return s.unlockAll(keys)
}

// unlockAll unlocks keys until none is locked any more.
func (s *session) unlockAll(keys []Key) error {
	var statements []statement
	for _, key := range keys {
		statements = append(statements, statement{unlock, key})
	}
	for locked := true; locked; {
		values, err := s.ask(context.Background(), statements...)
		if err != nil {
			return err
		}
		locked = slices.Contains(values, 1)
	}
	return nil
}

// wait blocks until the server grants the key of a place, and reports whether it has. It returns
// without a grant when ctx ends or the server refuses. The session is lost if its locks are in
// doubt.
func (s *session) wait(ctx context.Context, e *entry, ttl time.Duration) bool {
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
		if refusal == nil && s.store.accept(e, values[0], s.used.Add(s.idle)) {
			return true
		}
		state = pgclient.SQLState(refusal)
		// A wait that was cut short may have been granted the key all the same.
		if err = s.bound(time.Now().Add(batchTimeout)); err == nil {
			err = s.unlockAll([]Key{e.key})
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

// lose gives up the connection, if there is one, and with it all locks of the session.
func (s *session) lose() {
	if s.conn != nil {
		disconnect(s.conn)
		s.conn = nil
		s.store.onLost(s)
	}
}

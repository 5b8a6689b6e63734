package advisory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
	pid     string        // of the server process
	process string        // identifies that for good
	idle    time.Duration // idle_session_timeout
	used    time.Time     // when the last statement was sent
}

// A call has a session carry out a function for the key of an entry. Without one it asks whether
// the session is alive, and has a reply when all calls before it have one.
type call struct {
	entry    *entry
	function string        // the name of a prepared statement, without the number of its parameters
	ttl      time.Duration // the server is to keep the session for so long
	place    time.Duration // of a try

	done    bool // the function is true
	token   int64
	waiting bool // of a try: there is a place instead
	err     error
}

const (
	try    = "holdfast_try"
	wait   = "holdfast_wait"
	unlock = "holdfast_unlock"
)

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
	var sent []*call
	st.mu.Lock()
	for _, c := range calls {
		switch e := c.entry; {
		case e == nil || err != nil:
			continue
		case c.function == unlock && e.state == held:
			e.state = ending
		case c.function == try && (st.keys[e.key] == nil || st.keys[e.key].state == ending):
			st.keys[e.key] = e // The server would grant a session its own keys again.
		default:
			continue
		}
		sent = append(sent, c)
	}
	st.mu.Unlock()
	var refusal error
	if err == nil {
		err = s.ask(context.Background(), sent...)
	}
	if len(sent) > 0 && pgclient.SQLState(err) != "" {
		refusal = st.wrapErr(err)
		err = s.unlockAll(sent...)
	}
	if err != nil && s.conn != nil {
		err = fmt.Errorf("the connection to the server was lost: %w", err)
		s.lose()
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, c := range calls {
		c.err = err
		switch e := c.entry; {
		case e == nil:
		case err != nil, c.function == unlock:
			st.drop(e)
		case refusal != nil:
			c.err = refusal
			st.drop(e)
		case c.done:
			e.state, e.token = held, c.token
			e.prolong(c.ttl)
		default:
			if st.keys[e.key] == e {
				delete(st.keys, e.key)
			}
			c.waiting = st.place(e, c)
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
	s.bound(deadline)
	idle := min(ttl+idleMargin, maxIdle)
	if idle <= s.idle {
		return nil
	}
	ms := (idle + time.Millisecond - 1).Milliseconds()
	const text = `SELECT pg_catalog.set_config(name, CASE name WHEN 'idle_session_timeout' THEN '%[1]d' WHEN 'tcp_user_timeout' THEN '%[1]d'
		WHEN 'tcp_keepalives_idle' THEN '%[2]d' WHEN 'lock_timeout' THEN '%[3]d' ELSE '0' END, false) FROM pg_catalog.pg_settings WHERE name IN
		('idle_session_timeout', 'tcp_user_timeout', 'tcp_keepalives_idle', 'lock_timeout', 'statement_timeout', 'transaction_timeout')`
	seconds := min((ms+999)/1000, 32767) // the most that Linux accepts
	_, err := s.conn.PgConn().Exec(context.Background(), fmt.Sprintf(text, ms, seconds, s.store.lockTimeout.Milliseconds())).ReadAll()
	if err == nil {
		s.idle = idle
	}
	return err
}

// bound has what waits for the server fail at a time. The zero Time is none.
func (s *session) bound(deadline time.Time) {
	_ = s.conn.PgConn().Conn().SetDeadline(deadline) // It fails if the connection is closed, and so does all else.
}

// ask carries out calls in one round trip, or a ping if there are none. After an error none is
// done, and those behind one that the server refuses are not carried out.
func (s *session) ask(ctx context.Context, calls ...*call) error {
	var batch pgconn.Batch
	for _, c := range calls {
		var parameters [][]byte
		for part := range strings.SplitSeq(c.entry.key.text, ",") {
			parameters = append(parameters, []byte(part))
		}
		batch.ExecStatement(described(c.function+strconv.Itoa(len(parameters))), parameters, nil, nil)
	}
	if len(calls) == 0 {
		batch.ExecStatement(described("holdfast_ping"), nil, nil, nil)
	}
	s.used = time.Now()
	results, err := s.conn.PgConn().ExecBatch(ctx, &batch).ReadAll()
	if err == nil && string(results[0].Rows[0][1]) != s.pid {
		err = errors.New("another server process replies, so there is a pooler of transactions in the path")
	}
	for i, c := range calls {
		if c.done = err == nil && results[i].Rows[0][0] != nil; c.done && c.function != unlock {
			c.token, err = strconv.ParseInt(string(results[i].Rows[0][0]), 10, 64)
		}
	}
	return err
}

// described returns a statement with two columns, of which the server need not describe the result.
func described(name string) *pgconn.StatementDescription {
	return &pgconn.StatementDescription{Name: name, Fields: make([]pgconn.FieldDescription, 2)}
}

// unlockAll unlocks the keys of calls until none is locked any more. Those that unlock are done.
func (s *session) unlockAll(calls ...*call) error {
	var all []*call
	for _, c := range calls {
		all = append(all, &call{entry: c.entry, function: unlock})
	}
	for again := true; again; again = slices.ContainsFunc(all, func(c *call) bool { return c.done }) {
		if err := s.ask(context.Background(), all...); err != nil {
			return err
		}
	}
	for _, c := range calls {
		c.done = c.function == unlock
	}
	return nil
}

// wait blocks until the server grants the key of a place, and reports whether it has. It returns
// without a grant when ctx ends or the server refuses. The session is lost if its locks are in
// doubt.
func (s *session) wait(ctx context.Context, e *entry, ttl time.Duration) (granted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.ready(ttl)
	c := &call{entry: e, function: wait}
	for state := lockNotAvailable; err == nil && state == lockNotAvailable && ctx.Err() == nil; {
		s.bound(time.Time{})
		bounded, cancel := context.WithTimeout(ctx, s.store.lockTimeout+batchTimeout)
		refusal := s.ask(bounded, c)
		cancel()
		s.store.mu.Lock()
		if granted = c.done && e.state == waiting; granted {
			e.state, e.token, e.kept = held, c.token, s.used.Add(min(ttl+idleMargin, maxIdle))
		}
		s.store.mu.Unlock()
		if granted {
			return true
		}
		state = pgclient.SQLState(refusal)
		// A wait that was cut short may have been granted the key all the same.
		s.bound(time.Now().Add(batchTimeout))
		err = s.unlockAll(c)
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
	var err error
	for s.bound(time.Now().Add(lookTime)); err == nil; {
		_, err = s.conn.WaitForNotification(context.Background())
	}
	if s.conn.IsClosed() {
		s.lose()
	} else {
		s.bound(time.Time{})
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

package advisory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
)

// A session is a connection with the locks that its server process has. It connects when it is
// used, and again after a loss.
type session struct {
	store *Store
	queue batch.Queue[*call]

	// Locked by Store.mu: the keys that it has, or tries to get, and until when the server keeps it
	// at least, after a wait that was granted.
	keys map[Key]*entry
	kept time.Time

	mu   sync.Mutex    // locked by what uses the fields below
	conn *pgx.Conn     // nil if there is none
	pid  string        // of the server process
	idle time.Duration // idle_session_timeout
	used time.Time     // when the last statement was sent
}

// A call has a session carry out a function for the key of an entry. A ping has no entry. It asks
// whether the session is alive, and has a reply when all calls before it have one.
type call struct {
	function string // the name of a prepared statement, without the number of its parameters
	entry    *entry
	ttl      time.Duration // the server is to keep the session for so long

	done  bool // the function is true
	token int64
	err   error
}

const (
	try    = "holdfast_try"
	wait   = "holdfast_wait"
	unlock = "holdfast_unlock"
	ping   = "holdfast_ping"
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
		case err != nil || c.function == ping:
			continue
		case c.function == try && s.keys[e.key] == nil && st.owners[e.owned] == e:
			s.keys[e.key] = e // The server would grant a session its own keys again.
		case c.function == unlock && s.keys[e.key] == e:
			delete(s.keys, e.key)
		default:
			continue
		}
		sent = append(sent, c)
	}
	st.mu.Unlock()
	if err == nil {
		err = s.ask(context.Background(), sent...)
	}
	var refusal error
	if len(sent) > 0 && pgclient.SQLState(err) != "" { // None of these keys is to stay locked.
		refusal = st.wrapErr(err)
		var undo []*call
		for _, c := range sent {
			undo = append(undo, &call{function: unlock, entry: c.entry})
			c.done = c.function == unlock
		}
		err = s.ask(context.Background(), undo...)
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
		case c.function == try && c.done:
			e.state, e.token, e.until = max(e.state, held), c.token, time.Now().Add(c.ttl)
		case c.function == try:
			c.err = cmp.Or(err, refusal)
			st.drop(e)
		case c.function == unlock:
			st.drop(e)
		}
	}
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
		batch.ExecStatement(described(ping), nil, nil, nil)
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

// wait blocks until the server grants the key of a place, ctx ends or the server refuses, and
// reports whether the key is granted. Every other attempt is undone: a wait that was cut short may
// have been granted the key all the same.
func (s *session) wait(ctx context.Context, e *entry, ttl time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.store
	var err error
	for again := true; again && ctx.Err() == nil; {
		if err = s.ready(ttl); err != nil {
			break
		}
		s.bound(time.Time{})
		bounded, cancel := context.WithTimeout(ctx, st.lockTimeout+batchTimeout)
		c := &call{function: wait, entry: e}
		err = s.ask(bounded, c)
		cancel()
		if c.done {
			st.mu.Lock()
			defer st.mu.Unlock()
			s.kept = s.used.Add(min(ttl+idleMargin, maxIdle))
			e.state, e.token = max(e.state, held), c.token
			return true
		}
		state := pgclient.SQLState(err)
		if s.bound(time.Now().Add(batchTimeout)); state != "" {
			err = s.ask(context.Background(), &call{function: unlock, entry: e})
		}
		again = err == nil && state == lockNotAvailable
	}
	if err != nil {
		s.lose()
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	s.unlist(e)
	return false
}

// keeps reports whether the server keeps the session of a grant for d, by the wall clock too: the
// other one stands still while the machine is suspended. The caller holds Store.mu.
func (s *session) keeps(d time.Duration) bool {
	return time.Until(s.kept) > d && time.Until(s.kept.Round(0)) > d
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

// unlist records that the session does not have the key of an entry any more. The caller holds
// Store.mu.
func (s *session) unlist(e *entry) {
	if s.keys[e.key] == e {
		delete(s.keys, e.key)
	}
}

// bound has what waits for the server fail at a time. The zero Time is none.
func (s *session) bound(deadline time.Time) {
	_ = s.conn.PgConn().Conn().SetDeadline(deadline) // It fails if the connection is closed, and so does all else.
}

// lose gives up the connection, if there is one, and with it all locks of the session. Their owners
// are told. A place stays: its wait goes on, or ends.
func (s *session) lose() {
	if s.conn == nil {
		return
	}
	disconnect(s.conn)
	s.conn = nil
	st := s.store
	var lost []owned
	st.mu.Lock()
	s.kept = time.Time{}
	for _, e := range s.keys {
		if e.state != waiting {
			st.drop(e)
			lost = append(lost, e.owned)
		}
	}
	st.mu.Unlock()
	for _, owner := range lost {
		st.notices.Send(owner.name, owner.owner, 0)
	}
}

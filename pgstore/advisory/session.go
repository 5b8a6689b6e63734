package advisory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batch"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

const (
	// batchTimeout bounds a batch, with the time to connect. A caller that has inlineTime left
	// sends on its own goroutine, and may return late by the difference.
	batchTimeout = 3800 * time.Millisecond
	inlineTime   = 2900 * time.Millisecond

	lockTimeout  = 10 * time.Second       // bounds a statement that waits, so that its snapshot does not get old
	shortPause   = 250 * time.Millisecond // how long an attempt waits for its sequence, and a place without a session lasts
	lookInterval = 50 * time.Millisecond  // how often an idle connection is looked at
	lookTime     = 100 * time.Microsecond // and for how long
	idleMargin   = time.Second            // by how much idle_session_timeout exceeds the longest TTL
	maxIdle      = 24 * 24 * time.Hour    // The server's own limit is little higher.
)

// A session is a connection, with the locks that its server process has. It is made at the first
// use, and at the first use after a loss.
type session struct {
	store *Store
	queue batch.Queue[*call]
	keys  map[string]*entry // that the session has, or tries to get; guarded by Store.mu

	mu    sync.Mutex    // guards the fields below; locked as long as a statement waits
	conn  *pgx.Conn     // nil if there is none; Store.mu is locked as well where it changes
	names string        // the suffix of the names of its prepared statements
	idle  time.Duration // idle_session_timeout
	used  time.Time     // when the last statement was sent
}

// A call is a function that a session carries out for an entry. The reply to a ping shows that the
// session is alive, and comes after those of all earlier calls.
type call struct {
	function string
	entry    *entry
	ttl      time.Duration // for which the server is to keep the session

	done  bool // the function has returned true
	token int64
	err   error
}

const try, wait, unlock, ping = "try", "wait", "unlock", "ping"

// do carries a call out in a batch. It returns an error if there is no result by the deadline of
// ctx.
func (s *session) do(ctx context.Context, c *call) error {
	if err := s.queue.Do(ctx, c); err != nil {
		return err
	}
	return c.err
}

// send carries out a batch, in its order and in one round trip. The server would grant a key again
// to the session that has it. So an attempt is sent if no entry of the session has its key, and an
// unlock if the entry has it. If the server refuses a statement, all attempts of the batch fail; an
// error of the connection, and one that shows that the server takes no writes, end the session. A
// wait is sent alone, and ends with ctx.
func (s *session) send(ctx context.Context, calls []*call) {
	st := s.store
	current := func(c *call) bool { return st.owners[c.entry.owned] == c.entry }
	over := func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return !slices.ContainsFunc(calls, current)
	}
	if over() { // The session may be another's by now, and wait for long.
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if over() { // It was lost meanwhile.
		return
	}
	err := s.ready(slices.MaxFunc(calls, func(c, d *call) int { return cmp.Compare(c.ttl, d.ttl) }).ttl)
	st.mu.Lock()
	sent := slices.DeleteFunc(slices.Clone(calls), func(c *call) bool {
		key := c.entry.key
		if c.function == try && s.keys[key] == nil && current(c) {
			s.keys[key] = c.entry
		}
		return c.function == ping || s.keys[key] != c.entry
	})
	st.mu.Unlock()
	var refusal error
	if err == nil {
		err = s.ask(ctx, sent)
		if state := pgclient.SQLState(err); state != "" && advices[state] != noWrites {
			// None of these keys is to stay locked: no attempt had its key before.
			refusal = wrapErr(err)
			var undo []*call
			for _, c := range sent {
				undo = append(undo, &call{function: unlock, entry: c.entry})
				c.done = c.function == unlock
			}
			if calls[0].function == wait { // It may have used up the time.
				s.bound(batchTimeout)
			}
			for err = s.ask(context.Background(), undo); pgclient.SQLState(err) == canceled; {
				err = s.ask(context.Background(), undo)
			}
		}
	}
	if err != nil && s.conn != nil {
		err = fmt.Errorf("the session with the locks was given up: %w", advise(err))
		s.lose()
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, c := range calls {
		c.err = err
		switch e := c.entry; {
		case c.function == ping:
		case c.function == unlock:
			st.drop(e)
		case c.done:
			e.state, e.token = max(e.state, held), c.token
			if c.function == try {
				e.until = time.Now().Add(c.ttl)
			} else {
				e.fresh = s.used.Add(idleMargin)
			}
		default:
			c.err = cmp.Or(err, refusal)
			if c.function == try && (c.err != nil || !st.place(e)) {
				st.drop(e)
			}
		}
	}
}

// ask carries out calls in one round trip, or a ping if there are none. After an error none counts
// as done. The server carries out no call behind one that it refuses.
func (s *session) ask(ctx context.Context, calls []*call) error {
	var all pgconn.Batch
	add := func(function string, parameters [][]byte) { // The server need not describe the one column.
		name := "holdfast_" + function + strconv.Itoa(max(1, len(parameters))) + s.names
		all.ExecStatement(&pgconn.StatementDescription{Name: name, Fields: make([]pgconn.FieldDescription, 1)}, parameters, nil, nil)
	}
	for _, c := range calls {
		add(c.function, bytes.Split([]byte(c.entry.key), []byte(",")))
	}
	if len(calls) == 0 {
		add(ping, nil)
	} else if calls[0].function == wait {
		s.bound(lockTimeout + batchTimeout)
	}
	s.used = time.Now()
	results, err := s.conn.PgConn().ExecBatch(ctx, &all).ReadAll()
	for i, c := range calls {
		if c.done = err == nil && results[i].Rows[0][0] != nil; c.done {
			c.token, err = strconv.ParseInt(string(results[i].Rows[0][0]), 10, 64)
		}
	}
	return err
}

// ready makes the connection if there is none, and bounds what is sent next. It sets the timeout
// after which the server ends a silent session, so that a process that hangs, or cannot be reached,
// does not keep its locks. It switches off other timeouts, which would end a statement that waits.
func (s *session) ready(ttl time.Duration) error {
	began := time.Now()
	s.look(time.Second)
	if s.conn == nil {
		if err := s.connect(); err != nil {
			return driver.NotApplied(wrapErr(err))
		}
	}
	s.bound(batchTimeout - time.Since(began))
	idle := min(ttl+idleMargin, maxIdle)
	if idle <= s.idle {
		return nil
	}
	patience := lockTimeout
	if s == s.store.sessions[0] { // It waits for a sequence that is locked, and renewals wait behind it.
		patience = shortPause
	}
	const text = `SELECT set_config(name, CASE name WHEN 'idle_session_timeout' THEN '%d' WHEN 'lock_timeout' THEN '%d' ELSE '0' END, false)
		FROM pg_settings WHERE name IN ('idle_session_timeout', 'lock_timeout', 'statement_timeout', 'transaction_timeout')`
	settings := fmt.Sprintf(text, idle.Milliseconds(), patience.Milliseconds())
	_, err := s.conn.PgConn().Exec(context.Background(), settings).ReadAll()
	for pgclient.SQLState(err) == canceled {
		_, err = s.conn.PgConn().Exec(context.Background(), settings).ReadAll()
	}
	if err == nil {
		s.idle = idle
	}
	return err
}

const (
	// ownPath has names in what follows mean the functions, operators and types of PostgreSQL,
	// whatever others have in the search_path: for the transaction, or else for the session.
	ownPath = `SELECT pg_catalog.set_config('search_path', pg_catalog.concat_ws(',', 'pg_catalog', pg_catalog."substring"(pg_catalog.current_setting('search_path'), '.+')), %t);`

	// zeroIfWritable is 0, or a division by zero on a server that takes no writes. The address may
	// lead to another server by now, whose locks exclude none of this one.
	zeroIfWritable = "0 / (NOT current_setting('transaction_read_only')::bool)::int"

	// setUp prepares statements, for keys of %[1]d integers. Each returns a value, or null if its
	// function returns false; pg_advisory_lock returns void. The names belong to one connection:
	// the statements fail if a pooler has led that to another server process.
	setUp = `PREPARE holdfast_try%[1]d%[5]s (%[2]s) AS SELECT CASE WHEN pg_try_advisory_lock(%[3]s) THEN %[4]s ELSE nullif(` + zeroIfWritable + `, 0) END;
		PREPARE holdfast_wait%[1]d%[5]s (%[2]s) AS SELECT CASE WHEN pg_advisory_lock(%[3]s) IS NOT NULL THEN %[4]s END;
		PREPARE holdfast_unlock%[1]d%[5]s (%[2]s) AS SELECT CASE WHEN pg_advisory_unlock(%[3]s) THEN ` + zeroIfWritable + ` ELSE nullif(` + zeroIfWritable + `, 0) END;
		PREPARE holdfast_ping%[1]d%[5]s AS SELECT ` + zeroIfWritable + ";"
)

// connect makes the connection of a session as the pool would, and refuses a server whose locks
// would not exclude all others, and a pooler, which gives its clients process numbers of its own.
// When the context of a statement ends, the statement is canceled and the connection remains.
func (s *session) connect() error {
	ctx, cancel := context.WithTimeout(s.store.ctx, batchTimeout)
	defer cancel()
	pool := s.store.pool.Config()
	config := pool.ConnConfig
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return err
		}
	}
	if name := config.RuntimeParams["application_name"]; name == "" || name == "holdfast" {
		host, _ := os.Hostname() // It is for people.
		config.RuntimeParams["application_name"] = fmt.Sprintf("holdfast %.30s/%d", host, os.Getpid())
	}
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Second}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	if pool.AfterConnect != nil {
		err = pool.AfterConnect(ctx, conn)
	}
	var pid uint32
	if err == nil {
		err = conn.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	}
	names := fmt.Sprint("_", rand.Uint64())
	_, token, raise := s.store.tokens()
	switch {
	case err != nil:
	case pid != conn.PgConn().PID():
		err = fmt.Errorf("%w: there is a pooler in the path, and with one that pools transactions two clients may hold one lock: "+
			"connect to the server itself, or use the lease table (postgres://)", driver.ErrUnsupported)
	default:
		_, err = conn.Exec(ctx, fmt.Sprintf(ownPath, false)+"SELECT "+zeroIfWritable+";"+raise+
			fmt.Sprintf(setUp, 1, "bigint", "$1", token, names)+fmt.Sprintf(setUp, 2, "int, int", "$1, $2", token, names), pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		disconnect(conn) // Nothing can be lost with it.
		return err
	}
	s.names, s.idle = names, 0 // Its settings are still to be made.
	s.store.mu.Lock()
	s.conn = conn
	s.store.mu.Unlock()
	return nil
}

// look reads what the server has sent to an idle connection, such as the end of the session.
func (s *session) look(unused time.Duration) {
	if s.conn == nil || time.Since(s.used) < unused {
		return
	}
	var err error
	for s.bound(lookTime); err == nil; {
		_, err = s.conn.WaitForNotification(context.Background())
	}
	if s.conn.IsClosed() {
		s.lose()
	}
}

// bound has what waits for the server fail after d.
func (s *session) bound(d time.Duration) {
	_ = s.conn.PgConn().Conn().SetDeadline(time.Now().Add(d)) // An error means that it is closed.
}

// lose gives up the connection, if there is one, and with it all locks of the session, and notifies
// their owners. Entries that have no lock yet stay: send ends those that were sent.
func (s *session) lose() {
	if s.conn == nil {
		return
	}
	defer disconnect(s.conn) // Its holders are told before the server.
	st := s.store
	st.mu.Lock()
	s.conn = nil
	for _, e := range s.keys {
		if e.state >= held {
			st.drop(e)
			defer st.notices.Send(e.name, e.owner, 0)
		}
	}
	st.mu.Unlock()
}

// disconnect closes a connection. The server learns of it even if another process has a duplicate.
func disconnect(conn *pgx.Conn) {
	raw := transport(conn)
	if half, ok := raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // It may be closed.
	}
	_ = raw.Close() // It may be closed.
}

// transport returns the connection below TLS.
func transport(conn *pgx.Conn) net.Conn {
	raw := conn.PgConn().Conn()
	if over, ok := raw.(interface{ NetConn() net.Conn }); ok {
		return over.NetConn()
	}
	return raw
}

// Connections returns duplicates of the descriptors of the connections, except of sessions that
// wait for a lock. The caller closes them, and must neither read nor write them. If this process is
// killed, its locks last until each process that was given a duplicate has closed it, the server's
// idle_session_timeout is over, or the server or the network ends the connection. On Windows
// Connections returns an error.
func (s *Store) Connections() (files []*os.File, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sess := range s.sessions {
		waits := slices.ContainsFunc(slices.Collect(maps.Values(sess.keys)), func(e *entry) bool { return e.state == waiting })
		if sess.conn == nil || waits {
			continue
		}
		filer, ok := transport(sess.conn).(interface{ File() (*os.File, error) })
		if !ok {
			return files, fmt.Errorf("a %T has no descriptor", transport(sess.conn))
		}
		if f, failed := filer.File(); failed == nil {
			files = append(files, f)
		} else if !errors.Is(failed, net.ErrClosed) {
			err = failed
		}
	}
	return files, err
}

package advisory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// connectTimeout bounds the time to make a connection ready.
const connectTimeout = 10 * time.Second

// States of the server's errors.
const (
	lockTableFull    = "53200"
	lockNotAvailable = "55P03"
	queryCanceled    = "57014"
	deadlockDetected = "40P01"
)

func sqlState(err error) string { return pgclient.SQLState(err) }

// A dial is an attempt to open the main session, for all that need it.
type dial struct {
	done chan struct{}
	sess *session
	err  error
}

// mainSession returns the session for what is free, and opens it if there is none. A dial that was
// under way before and fails says nothing of the server as it is now: another one follows.
func (s *Store) mainSession(ctx context.Context) (*session, error) {
	sess, joined, err := s.joinDial(ctx)
	if err != nil && joined && ctx.Err() == nil {
		sess, _, err = s.joinDial(ctx)
	}
	return sess, err
}

// joinDial waits for the dial of the main session, and reports whether it was under way before.
func (s *Store) joinDial(ctx context.Context) (sess *session, joined bool, err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, false, driver.ErrClosed
	}
	if s.main != nil {
		defer s.mu.Unlock()
		return s.main, false, nil
	}
	d := s.dial
	joined = d != nil
	if d == nil {
		d = &dial{done: make(chan struct{})}
		s.dial = d
		s.running.Add(1)
		go func() {
			defer s.running.Done()
			d.sess, d.err = s.openSession(s.ctx, func() {})
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.dial = nil; d.err == nil && s.sessions[d.sess] {
				s.main = d.sess
			}
			close(d.done)
		}()
	}
	s.mu.Unlock()
	select {
	case <-d.done:
		return d.sess, joined, d.err
	case <-ctx.Done():
		return nil, joined, fmt.Errorf("no connection in time: %w", ctx.Err())
	}
}

// openSession opens a session, once the processes of sessions that were lost have ended, or a second
// later. When the session ends, or none was opened, it calls onEnd with s.mu locked.
func (s *Store) openSession(ctx context.Context, onEnd func()) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	sess, err := s.connect(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.closed {
		disconnect(sess.conn)
		err = driver.ErrClosed
	}
	if err != nil {
		onEnd()
		return nil, s.wrapErr(err)
	}
	sess.onEnd = onEnd
	s.sessions[sess] = true
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		sess.run()
	}()
	return sess, nil
}

func (s *Store) connect(ctx context.Context) (*session, error) {
	s.mu.Lock()
	var orphans []chan struct{}
	for _, gone := range s.orphans {
		orphans = append(orphans, gone)
	}
	s.mu.Unlock()
	late := time.After(time.Second)
	for _, gone := range orphans {
		select {
		case <-gone:
		case <-late:
			late = time.After(0)
		}
	}
	conn, err := s.dialConn(ctx)
	if err != nil {
		return nil, err
	}
	sess, err := s.prepare(ctx, conn)
	if err != nil {
		_ = conn.Close(ctx) // Nothing can be lost with it.
		return nil, err
	}
	return sess, nil
}

// dialConn makes a connection as the pool would.
func (s *Store) dialConn(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgclient.ConnConfig(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	if name := config.RuntimeParams["application_name"]; name == "" || name == "holdfast" {
		config.RuntimeParams["application_name"] = applicationName()
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	afterConnect := s.pool.Config().AfterConnect
	if err != nil || afterConnect == nil {
		return conn, err
	}
	if err := afterConnect(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// applicationName identifies the program that has the locks in the server's monitoring.
func applicationName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("holdfast %.30s/%d", host, os.Getpid())
}

var errStandby = fmt.Errorf("%w: this server is a standby, whose locks exclude nobody on the primary: connect to that "+
	"(target_session_attrs=read-write)", driver.ErrNotApplied)

// prepare makes a session of a connection, and refuses one on which locks would not exclude all
// others. A pooler gives its clients process numbers of its own.
func (s *Store) prepare(ctx context.Context, conn *pgx.Conn) (*session, error) {
	const query = `SELECT pg_catalog.pg_backend_pid(),
		coalesce((SELECT backend_start::text FROM pg_catalog.pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid()), ''::text),
		pg_catalog.pg_is_in_recovery(),
		pg_catalog.current_setting('max_locks_per_transaction'::text)::int *
			(pg_catalog.current_setting('max_connections'::text)::int + pg_catalog.current_setting('max_prepared_transactions'::text)::int),
		`
	sess := &session{store: s, conn: conn}
	var standby bool
	var capacity int
	var clock int64
	err := conn.QueryRow(ctx, query+pgclient.Microseconds("pg_catalog.clock_timestamp()"), pgx.QueryExecModeSimpleProtocol).
		Scan(&sess.pid, &sess.started, &standby, &capacity, &clock)
	switch {
	case err != nil:
		return nil, err
	case standby:
		return nil, errStandby
	case sess.pid != conn.PgConn().PID() && !s.options.SessionPooled:
		return nil, fmt.Errorf("%w: there is a pooler in the path, and with one that pools transactions two clients may hold one lock: "+
			"connect to the server itself, or say SessionPooled if it pools sessions, or use the lease table (postgres://)", driver.ErrUnsupported)
	}
	neutral := fmt.Sprintf("SET statement_timeout = 0; SET lock_timeout = %d", lockTimeout.Milliseconds())
	if _, err := conn.PgConn().Exec(ctx, neutral).ReadAll(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.capacity = capacity
	s.mu.Unlock()
	if s.options.TokenSequence == "" {
		return sess, nil
	}
	_, err = sess.raiseToken(ctx, clock)
	return sess, err
}

// wrapErr gives an error of the server the advice that it needs, and says whether anything was
// applied.
func (s *Store) wrapErr(err error) error {
	state := sqlState(err)
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
func (s *Store) adviceFor(state string) string {
	switch state {
	case "42P01":
		return fmt.Sprintf("the sequence of tokens %s is not there: Store.Migrate creates it", s.options.TokenSequence)
	case "42501":
		return "the user needs USAGE, SELECT and UPDATE on the sequence of tokens, or may not do what was asked"
	case lockTableFull:
		return "the server's lock table is full: hold fewer locks, or raise max_locks_per_transaction"
	case "53300":
		return "the server has no connection left: advisory locks need one of their own for each process, and one for each waiter"
	case "57P03":
		return "the server is starting or stopping"
	}
	return ""
}

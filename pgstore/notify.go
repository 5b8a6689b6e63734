package pgstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/olddriver/notices"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// listenPing is how often a connection that listens is tested.
const listenPing = 20 * time.Second

// A notifier passes the notifications for a Store to the functions that Notify has registered. The
// Store listens on a channel of its own. The payload identifies a waiter without its secret.
type notifier struct {
	channel string // random
	start   sync.Once
	running sync.WaitGroup
	notices notices.Registry

	mu      sync.Mutex
	waiters map[string]waitingOwner // by payload
	purgeAt int                     // the number of waiters at which those that are over are deleted
}

// A waitingOwner is an owner that waits for a name until a time.
type waitingOwner struct {
	name, owner string
	until       time.Time
}

// Notify implements [olddriver.Notifier]. The connection that listens is made at the first wait. Every
// notice is an Ask.
func (s *engine) Notify(f func(olddriver.Notice)) (stop func()) {
	return s.notifier.notices.Notify(f)
}

// addWaiter registers an owner that waits for d. It returns the channel and the payload of its
// notifications.
func (n *notifier) addWaiter(name, owner string, d time.Duration) (notifyTo string) {
	payload := fmt.Sprintf("%x", sha256.Sum256([]byte(name+"\x00"+owner)))[:32]
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiters[payload] = waitingOwner{name, owner, now.Add(d + time.Minute)} // A late notice does no harm.
	if len(n.waiters) > n.purgeAt {
		for payload, w := range n.waiters {
			if w.until.Before(now) {
				delete(n.waiters, payload)
			}
		}
		n.purgeAt = max(1000, 2*len(n.waiters))
	}
	return n.channel + " " + payload
}

// waiterOf returns the owner that a payload identifies.
func (n *notifier) waiterOf(payload string) (w waitingOwner, found bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w, found = n.waiters[payload]
	return w, found
}

// sendAsk sends an Ask to an owner, or to all if the name is "".
func (n *notifier) sendAsk(name, owner string) {
	n.notices.Send(olddriver.Notice{Kind: olddriver.Ask, Name: name, Owner: owner})
}

// startListening listens until the store is closed, or until it turns out to be impossible.
func (s *engine) startListening() {
	s.notifier.start.Do(func() {
		if s.beginBackground() {
			s.notifier.running.Go(s.listen)
			s.background.Done()
		}
	})
}

func (s *engine) listen() {
	for failures := 0; ; failures++ {
		conn, err := s.dialListener()
		if errors.Is(err, driver.ErrUnsupported) {
			s.cannotListen.Store(true)
			s.notifier.sendAsk("", "")
			return
		}
		if err == nil {
			s.notifier.sendAsk("", "") // What was sent before is lost.
			failures = 0
			s.forward(conn)
			closeConn(conn)
		}
		if pgclient.PauseBeforeReconnect(s.ctx, failures) != nil {
			return
		}
	}
}

// dialListener makes a connection that listens.
func (s *engine) dialListener() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, pgclient.ListenTimeout)
	defer cancel()
	config, err := s.pool.listenConfig(ctx)
	if err != nil {
		return nil, err
	}
	config.OnNotification = nil // It would get the notifications instead of forward.
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	var pid uint32
	err = conn.QueryRow(ctx, pgclient.PingStatement, pgx.QueryExecModeExec).Scan(&pid)
	if err == nil && pid != conn.PgConn().PID() {
		err = fmt.Errorf("%w: a pooler is in the path, through which nobody can listen", driver.ErrUnsupported)
	}
	if err == nil {
		_, err = conn.Exec(ctx, "LISTEN "+s.notifier.channel, pgx.QueryExecModeExec)
	}
	if err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// forward passes on the notifications of a connection until it fails or the store is closed.
func (s *engine) forward(conn *pgx.Conn) {
	for s.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(s.ctx, listenPing)
		note, err := conn.WaitForNotification(ctx)
		idle := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			if w, found := s.notifier.waiterOf(note.Payload); found {
				s.nameCache.set(w.name, stateContended, 0)
				s.notifier.sendAsk(w.name, w.owner)
			}
		case idle:
			ctx, cancel := context.WithTimeout(s.ctx, pgclient.ListenTimeout)
			_, err := conn.Exec(ctx, pgclient.PingStatement, pgx.QueryExecModeExec)
			cancel()
			if err != nil {
				return
			}
		default:
			return
		}
	}
}

// closeConn closes a connection that is no longer used.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// notifyWaiters notifies the waiters for names whose turn it may be, in the background.
func (s *engine) notifyWaiters(names ...string) {
	if len(names) == 0 {
		return
	}
	s.runInBackground(func() {
		ctx, cancel := context.WithTimeout(context.Background(), pgclient.NotifyTimeout)
		defer cancel()
		_ = s.queryUntilDone(ctx, func(ctx context.Context, c conn, unprepared bool) error {
			return c.query(ctx, unprepared, s.queries.notify, []any{arrayLiteral(names)}, func(scanner) error { return nil })
		}) // After an error, waiters get the name by the renewal of their places.
	})
}

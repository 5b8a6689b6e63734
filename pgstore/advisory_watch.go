package pgstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// advisoryChannel is the name under which releases are told, with the key.
const advisoryChannel = "holdfast_advisory"

// earLimit is for how long a connection that listens may be silent: the server
// ends that of a process that hangs, whose marks would have others notify it.
const earLimit = time.Minute

// How often the connection is looked at, and after how many looks the server is
// asked whether it is there; for how long it may take to tell of a release.
const (
	earLook   = time.Second
	earQuiet  = int(earLimit / 3 / earLook)
	tellBound = 250 * time.Millisecond
)

// Whoever watches is also signalled at these times, each twice as long as the
// one before: other programs unlock keys without telling anybody, and so does
// the server when the session of a holder ends. After the last of them
// package holdfast tries by itself as often as that.
const (
	firstLook = 25 * time.Millisecond
	lastLook  = 2 * time.Second
)

// Watch implements [driver.Watcher]. It is signalled by releases through any
// AdvisoryStore, and at growing intervals in case it was another program that
// had the key.
func (s *AdvisoryStore) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if s.options.NoListen {
		return nil, driver.ErrUnsupported
	}
	key, err := s.keys(name)
	if err != nil {
		return nil, err
	}
	signal, err := s.watcher.watch(ctx, key.String())
	if err == nil && s.firstLook > 0 {
		look(ctx, signal, s.firstLook)
	}
	return signal, err
}

// look signals after a pause, and at growing intervals then.
func look(ctx context.Context, signal chan struct{}, pause time.Duration) {
	time.AfterFunc(pause, func() {
		if ctx.Err() != nil {
			return
		}
		poke(signal)
		if 2*pause < lastLook {
			look(ctx, signal, 2*pause)
		}
	})
}

// tell has those who wait for a key told that it was released. That is not done
// on the session of the lock: the commit may have to wait for those of others,
// which no lock should have to. The caller holds s.mu.
func (s *AdvisoryStore) tell(key Key) {
	if s.closed {
		return
	}
	s.running.Go(func() {
		if !s.watcher.tell(key.String()) {
			notify(pgxPool{s.pool}, false, advisoryChannel, key.String())
		}
	})
}

// tell implements ear. A connection that does not answer is not waited for:
// whoever waits may be told twice, but not late.
func (e *advisoryEar) tell(name string) bool {
	if late, _ := e.on.progress(time.Now()); late > tellBound {
		return false
	}
	told := make(chan error, 1)
	e.on.send(statement{
		name:   "holdfast_tell",
		params: [][]byte{[]byte(advisoryChannel), []byte(name)},
		done:   func(_ []byte, err error) { told <- err },
	})
	limit := time.NewTimer(tellBound)
	defer limit.Stop()
	select {
	case err := <-told:
		return err == nil // An end of the session is an answer, too.
	case <-limit.C:
		return false
	}
}

// listen makes a connection that listens, and marks what is watched already.
func (s *AdvisoryStore) listen(ctx context.Context) (ear, error) {
	on, err := s.connect(ctx, earLimit, markStatements, func(ctx context.Context, conn *pgx.Conn, _ welcome) error {
		_, err := conn.PgConn().Exec(ctx, "LISTEN "+advisoryChannel).ReadAll()
		return err
	})
	if err != nil {
		return nil, err
	}
	e := &advisoryEar{s: s, on: on, over: make(chan struct{}), marks: map[string]*mark{}}
	on.heard, on.ended = s.watcher.wake, e.ended
	s.watcher.running.Go(on.read)
	if err := e.markAll(ctx, s.watcher.watched()); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// markAll marks names, of which there may be many: all are asked for before the
// first answer is awaited.
func (e *advisoryEar) markAll(ctx context.Context, names []string) error {
	for _, name := range names {
		_, _ = e.request(name) // mark has the same error.
	}
	for _, name := range names {
		// Where there is another error, that name is tried at intervals.
		if err := e.mark(ctx, name); errors.Is(err, errSessionLost) || ctx.Err() != nil {
			return cmp.Or(err, ctx.Err())
		}
	}
	return nil
}

// hear implements ear. Notifications go from the session to the watcher; from
// time to time the server is asked whether it is there.
func (e *advisoryEar) hear(ctx context.Context) {
	ticker := time.NewTicker(earLook)
	defer ticker.Stop()
	for looks := 1; ; looks++ {
		select {
		case <-ctx.Done():
			return
		case <-e.over:
			return
		case <-ticker.C:
		}
		if late, _ := e.on.progress(time.Now()); late > listenBound {
			return
		}
		if looks%earQuiet == 0 {
			e.on.send(statement{name: "holdfast_ping", done: func([]byte, error) {}})
		}
	}
}

// ended is the end of the session, and of the marks with it.
func (e *advisoryEar) ended(cause error) (tell func()) {
	e.s.mu.Lock()
	e.s.haunt(e.on, cause)
	e.s.mu.Unlock()
	e.deafen()
	return func() { close(e.over) }
}

// close implements ear.
func (e *advisoryEar) close() {
	e.deafen()
	e.on.leave()
}

// deafen gives up the marks, which end with the session.
func (e *advisoryEar) deafen() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.deaf {
		e.deaf = true
		e.s.marks.Store(0)
	}
}

//go:build unix

package pgstore

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/oldqueue/queuetest"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// A noticeLog has the notices of a store. An Ask for all has no name.
type noticeLog struct{ notices chan olddriver.Notice }

// noticesOf returns the notices of a store that has not listened before. It listens from now on.
func noticesOf(t *testing.T, s *engine) *noticeLog {
	t.Helper()
	l := &noticeLog{make(chan olddriver.Notice, 10000)}
	t.Cleanup(s.Notify(func(n olddriver.Notice) { l.notices <- n }))
	s.startListening()
	l.expectAll(t)
	return l
}

func (l *noticeLog) next(t *testing.T) olddriver.Notice {
	t.Helper()
	select {
	case n := <-l.notices:
		return n
	case <-time.After(pgtest.Bound):
		t.Fatal("no notice came")
		return olddriver.Notice{}
	}
}

// expect waits for the notice of an owner, which must be the next.
func (l *noticeLog) expect(t *testing.T, req olddriver.AcquireRequest) {
	t.Helper()
	if n, want := l.next(t), (olddriver.Notice{Kind: olddriver.Ask, Name: req.Name, Owner: req.Owner}); n != want {
		t.Errorf("the notice %+v, want %+v", n, want)
	}
}

func (l *noticeLog) expectAll(t *testing.T) {
	t.Helper()
	if n := l.next(t); n != (olddriver.Notice{Kind: olddriver.Ask}) {
		t.Errorf("the notice %+v, want an Ask for all", n)
	}
}

// flush returns the notices that were sent before.
func (l *noticeLog) flush(t *testing.T, s *engine) (notices []olddriver.Notice) {
	t.Helper()
	s.background.Wait()
	channel, payload, _ := strings.Cut(s.notifier.addWaiter("the end", "", time.Minute), " ")
	change(t, s, "SELECT pg_notify($1, $2)", channel, payload)
	for {
		n := l.next(t)
		if n.Name == "the end" {
			return notices
		}
		notices = append(notices, n)
	}
}

// queueUp makes a place in the queue of a name that must be held.
func queueUp(t *testing.T, s *engine, name string, queue time.Duration) olddriver.AcquireRequest {
	t.Helper()
	req := pgtest.Request(name, time.Minute)
	req.Queue = queue
	if res, err := s.Acquire(t.Context(), req); err != nil || !res.Queued {
		t.Fatalf("Acquire of %q with Queue: %+v, %v, want it queued", name, res, err)
	}
	return req
}

func claim(t *testing.T, s *engine, req olddriver.AcquireRequest) olddriver.AcquireResult {
	t.Helper()
	req.Claim = true
	res, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Claim of %q: %v", req.Name, err)
	}
	return res
}

// claimed claims what must have been admitted.
func claimed(t *testing.T, s *engine, req olddriver.AcquireRequest) olddriver.AcquireResult {
	t.Helper()
	res := claim(t, s, req)
	if !res.Granted {
		t.Fatalf("Claim of %q: %+v, want it granted", req.Name, res)
	}
	return res
}

// The queue of a name keeps the rule of package oldqueue.
func TestHistories(t *testing.T) {
	t.Parallel()
	all, err := queuetest.Histories()
	if err != nil {
		t.Fatal(err)
	}
	s := open(t)
	log := noticesOf(t, s)
	played := 0
	for _, h := range all {
		played++
		t.Run(strings.ReplaceAll(h.Title, " ", "-"), func(t *testing.T) {
			if err := queuetest.Play(h, 1, &historyStore{t: t, s: s, log: log, name: h.Title, asked: map[string]int64{}}); err != nil {
				t.Error(err)
			}
		})
	}
	if played < 60 {
		t.Errorf("%d histories were played", played)
	}
}

// A historyStore is one name in a Store. Its time passes when the times and tokens in the rows are
// set back.
type historyStore struct {
	t      *testing.T
	s      *engine
	log    *noticeLog
	name   string
	passed time.Duration
	asked  map[string]int64 // the tokens of the holds that were notified, by owner
}

func (h *historyStore) Now() int64 { return time.Now().Add(h.passed).UnixMicro() }

func (h *historyStore) Advance(d time.Duration) {
	h.t.Helper()
	h.passed += d
	micros := d.Microseconds()
	change(h.t, h.s, `UPDATE @table@ SET acquired_at = acquired_at - v, granted_at = granted_at - v, expires_at = expires_at - v,
		token = token - $2::bigint, last_token = last_token - $2::bigint FROM (SELECT $2::bigint * interval '1 microsecond' AS v) AS v WHERE lock_name = $1`, h.name, micros)
	change(h.t, h.s, `UPDATE @shares@ SET acquired_at = acquired_at - v, expires_at = expires_at - v, token = token - $2::bigint,
		last_token = last_token - $2::bigint FROM (SELECT $2::bigint * interval '1 microsecond' AS v) AS v WHERE lock_name = $1`, h.name, micros)
	change(h.t, h.s, `UPDATE @waiters@ SET until = until - $2::bigint * interval '1 microsecond', floor = greatest(floor - $2::bigint, 0)
		WHERE lock_name = $1`, h.name, micros)
}

// own returns a token of the rows, given one of the history, and the other way round.
func (h *historyStore) own(token, sign int64) int64 {
	if token == 0 {
		return 0
	}
	return max(1, token+sign*h.passed.Microseconds())
}

func (h *historyStore) Acquire(req queuetest.Request) queuetest.Reply {
	res, err := h.s.Acquire(h.t.Context(), olddriver.AcquireRequest{
		Name: h.name, Owner: req.Owner, Holder: req.Owner, TTL: req.TTL, Queue: req.Queue, Claim: req.Claim, Tokens: req.Tokens,
		Floor: h.own(req.Floor, -1), Limit: req.Limit,
	})
	if errors.Is(err, driver.ErrInvalid) {
		return queuetest.Reply{Invalid: true}
	}
	if err != nil {
		h.t.Error(err)
	}
	reply := queuetest.Reply{
		Token: h.own(res.Token, 1), Tokens: res.Tokens, Queued: res.Queued, First: res.First, Held: res.Held.Holder, Left: res.Held.Remaining,
	}
	if res.Held.Kept {
		reply.Held = "keep"
	}
	return reply
}

func (h *historyStore) Renew(owner string, token int64, ttl time.Duration) queuetest.Outcome {
	outcomes, err := h.s.Renew(h.t.Context(), []olddriver.RenewRequest{{Name: h.name, Owner: owner, TTL: ttl, Token: h.own(token, -1)}})
	if err != nil {
		h.t.Error(err)
	}
	return map[olddriver.RenewOutcome]queuetest.Outcome{olddriver.Renewed: queuetest.Renewed, olddriver.RenewQueued: queuetest.Queued, olddriver.RenewLost: queuetest.Lost}[outcomes[0]]
}

func (h *historyStore) Release(owner string, keep time.Duration) bool {
	ended, err := h.s.Release(h.t.Context(), olddriver.ReleaseRequest{Name: h.name, Owner: owner, Keep: keep})
	if err != nil {
		h.t.Error(err)
	}
	return ended
}

func (h *historyStore) Break(token int64) int {
	rec, found, err := h.s.Break(h.t.Context(), olddriver.BreakRequest{Name: h.name, Token: h.own(token, -1)})
	if err != nil {
		h.t.Error(err)
	}
	if !found {
		return 0
	}
	return 1 + len(rec.Others)
}

// Notices adds the tokens of those that were admitted. The release of a contended name may notify a
// hold again, which changes nothing.
func (h *historyStore) Notices() (all []queuetest.Notice) {
	for _, n := range h.log.flush(h.t, h.s) {
		if n.Kind != olddriver.Ask || n.Name != h.name {
			h.t.Errorf("the notice %+v, of %q", n, h.name)
			continue
		}
		notice := queuetest.Notice{Owner: n.Owner}
		if err := h.s.queryRows(h.t.Context(), h.s.expandSQL(`SELECT token, greatest(last_token - token, 0) + 1 FROM (
			SELECT lock_name, holder_id, token, last_token FROM @table@ UNION ALL SELECT lock_name, owner, token, last_token FROM @shares@) AS h
			WHERE lock_name = $1 AND holder_id = $2`), []any{h.name, n.Owner}, func() {}, func(scan scanner) error { return scan(&notice.Token, &notice.Tokens) }); err != nil {
			h.t.Error(err)
		}
		notice.Token = h.own(notice.Token, 1)
		if notice.Token == 0 || h.asked[n.Owner] != notice.Token {
			all = append(all, notice)
		}
		h.asked[n.Owner] = notice.Token
	}
	return all
}

// Refreshes of places and releases of the same names wait for each other in no circle, and no place
// is lost by being admitted meanwhile.
func TestRefreshesBesideReleases(t *testing.T) {
	t.Parallel()
	for what, limits := range map[string][]int{"exclusive": {0}, "mixed": {0, olddriver.Shared, 2}} {
		t.Run(what, func(t *testing.T) { testRefreshesBesideReleases(t, limits) })
	}
}

func testRefreshesBesideReleases(t *testing.T, limits []int) {
	s := open(t, "pool_max_conns=16", "options=-c%20deadlock_timeout%3D10ms%20-c%20synchronous_commit%3Doff")
	const names, waiters = 4, 6
	rounds := 300 / len(limits)
	deadlocks := func() (n int) {
		query(t, s, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()", nil, &n)
		return n
	}
	before := deadlocks()
	var group sync.WaitGroup
	for i := range waiters { // each waits for all names, and renews its places together
		group.Go(func() {
			mine := map[string]olddriver.AcquireRequest{}
			for round := 0; round < rounds*names; {
				for n := range names {
					name := fmt.Sprint("name/", (n+i)%names)
					if _, ok := mine[name]; ok {
						continue
					}
					req := pgtest.Request(name, time.Minute)
					req.Queue, req.Limit = time.Minute, limits[i%len(limits)]
					res, err := s.Acquire(t.Context(), req)
					if err != nil {
						t.Errorf("Acquire: %v", err)
						return
					}
					if res.Granted || res.Queued { // else the row was locked for too long, as on a busy machine
						mine[name] = req
					}
				}
				var reqs []olddriver.RenewRequest
				for _, req := range mine {
					reqs = append(reqs, olddriver.RenewRequest{Name: req.Name, Owner: req.Owner, TTL: time.Minute})
				}
				outcomes, err := s.Renew(t.Context(), reqs)
				if err != nil && !errors.Is(err, errRowLocked) {
					t.Errorf("Renew: %v", err)
					return
				}
				for i, outcome := range outcomes {
					switch outcome {
					case olddriver.RenewLost:
						t.Errorf("a place is lost")
					case olddriver.Renewed:
						ended, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: reqs[i].Name, Owner: reqs[i].Owner})
						if err != nil || !ended {
							t.Errorf("Release: %v, %v", ended, err)
						}
						delete(mine, reqs[i].Name)
						round++
					}
				}
				if t.Failed() {
					return
				}
			}
			for _, req := range mine {
				if _, err := s.Release(t.Context(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); err != nil {
					t.Errorf("Release at the end: %v", err)
				}
			}
		})
	}
	group.Wait()
	change(t, s, "SELECT pg_stat_force_next_flush()")
	if n := deadlocks() - before; n > 0 {
		t.Errorf("%d deadlocks", n)
	}
	var left int
	query(t, s, "SELECT count(*) FROM @waiters@", nil, &left)
	if left > 0 {
		t.Errorf("%d waiters are left", left)
	}
}

// A crash of the server forgets the queues and no hold. Places are lost then, and made anew.
func TestCrashWithQueue(t *testing.T) {
	t.Parallel()
	server := servers.StartPostgres(t)
	migrated(t, server.URL("postgres"), nil)
	s := openAt(t, server.URL("postgres"))
	log := noticesOf(t, s)
	held := map[string]olddriver.AcquireRequest{}
	var places []olddriver.AcquireRequest
	for _, name := range []string{"a", "b"} {
		held[name] = grant(t, s, name, time.Hour)
		for range 8 {
			places = append(places, queueUp(t, s, name, time.Hour))
		}
	}
	server.Restart() // at once, without a shutdown
	pgtest.Eventually(t, "answer after the crash", func() bool {
		outcomes, err := s.Renew(t.Context(), pgtest.Renewals(places...))
		if err != nil {
			return false
		}
		for _, outcome := range outcomes {
			if outcome != olddriver.RenewLost {
				t.Errorf("the place is renewed after a crash: %v", outcome)
			}
		}
		return true
	})
	log.expectAll(t)
	for _, name := range []string{"a", "b"} {
		if res := claim(t, s, places[0]); res.Granted || res.Queued {
			t.Errorf("Claim of a place that was lost: %+v", res)
		}
		w := queueUp(t, s, name, time.Hour)
		if !release(t, s, held[name]) {
			t.Error("a hold was lost")
		}
		log.expect(t, w)
		claimed(t, s, w)
		if !release(t, s, w) {
			t.Error("a hold that was admitted is not there to be released")
		}
		grant(t, s, name, time.Minute)
	}
	var flagged int
	query(t, s, "SELECT count(*) FROM @table@ WHERE has_waiters", nil, &flagged)
	if flagged > 0 {
		t.Errorf("%d names are marked as having waiters", flagged)
	}
}

// Functions for other languages keep to the queue: acquire_lock does not overtake, and release_lock
// admits the first and notifies it.
func TestLanguagesBesideQueue(t *testing.T) {
	t.Parallel()
	s := open(t)
	log := noticesOf(t, s)
	do := func(want bool, text string) {
		t.Helper()
		var done bool
		query(t, s, text, nil, &done)
		if done != want {
			t.Errorf("%s: %v", s.expandSQL(text), done)
		}
	}
	do(true, "SELECT @acquire_lock@('name'::text, 'worker'::text, 60)")
	a, b := queueUp(t, s, "name", time.Minute), queueUp(t, s, "name", time.Minute)
	change(t, s, "UPDATE @table@ SET expires_at = now()")
	do(false, "SELECT @acquire_lock@('name'::text, 'other'::text, 60)")
	log.expect(t, a)
	claimed(t, s, a)
	release(t, s, a)
	log.expect(t, b)
	do(false, "SELECT @acquire_lock@('name'::text, 'other'::text, 60)")
	claimed(t, s, b)
	release(t, s, b)
	do(true, "SELECT @acquire_lock@('name'::text, 'worker'::text, 60)")
	c := queueUp(t, s, "name", time.Minute)
	do(true, "SELECT @release_lock@('name'::text, 'worker'::text)")
	log.expect(t, c)
	claimed(t, s, c)
	if got := log.flush(t, s); len(got) > 0 {
		t.Errorf("the notices %+v that nothing was the cause of", got)
	}
}

// The statements for names without waiters leave alone a name that has some, whatever is believed
// of it.
func TestBareStatementsBesideQueue(t *testing.T) {
	t.Parallel()
	s := open(t)
	log := noticesOf(t, s)
	held := grant(t, s, "name", time.Hour)
	a, b := queueUp(t, s, "name", time.Minute), queueUp(t, s, "name", time.Minute)
	freed := &rowChange{name: "name", owner: held.Owner}
	if err := s.changeTogether(t.Context(), []*rowChange{freed}, nil); err != nil || freed.decided {
		t.Errorf("Release of many: %+v, %v, want it undecided", freed, err)
	}
	s.nameCache.set("name", stateHeld, time.Hour)
	if !release(t, s, held) {
		t.Error("Release: nothing was held")
	}
	log.expect(t, a)
	change(t, s, "UPDATE @table@ SET expires_at = now()")
	taken := acquisition("name", 0)
	if err := s.changeTogether(t.Context(), nil, []*rowChange{taken}); err != nil || taken.decided {
		t.Errorf("Acquire of many: %+v, %v, want it undecided", taken, err)
	}
	s.nameCache.set("name", stateFree, 0)
	refuse(t, s, "name")
	log.expect(t, b)
}

// A program that frees a row by hand does not know the queue. The next refresh admits the first
// place.
func TestRowFreedByHand(t *testing.T) {
	t.Parallel()
	s := open(t)
	log := noticesOf(t, s)
	grant(t, s, "name", time.Hour)
	a, b := queueUp(t, s, "name", time.Minute), queueUp(t, s, "name", time.Minute)
	change(t, s, "UPDATE @table@ SET expires_at = now()")
	if got := renew(t, s, b); got[0] != olddriver.RenewQueued {
		t.Errorf("Renew of the second place: %v", got)
	}
	log.expect(t, a)
	change(t, s, "DELETE FROM @table@")
	if got := renew(t, s, a, b); got[0] != olddriver.RenewLost || got[1] != olddriver.RenewLost {
		t.Errorf("Renew of a place of a lock that has no row: %v", got)
	}
	grant(t, s, "name", time.Minute)
}

// After the connection that listens has ended, an Ask for all comes when there is another.
func TestListenerEnds(t *testing.T) {
	t.Parallel()
	s := open(t)
	log := noticesOf(t, s)
	held := grant(t, s, "name", time.Minute)
	w := queueUp(t, s, "name", time.Minute)
	var done bool
	query(t, s, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = $1", []any{"LISTEN " + s.notifier.channel}, &done)
	release(t, s, held)
	for n := log.next(t); n != (olddriver.Notice{Kind: olddriver.Ask}); n = log.next(t) {
		if n.Owner != w.Owner { // It may have been sent before the end.
			t.Errorf("the notice %+v", n)
		}
	}
	claimed(t, s, w)
	next := queueUp(t, s, "name", time.Minute)
	release(t, s, w)
	for n := log.next(t); n != (olddriver.Notice{Kind: olddriver.Ask, Name: "name", Owner: next.Owner}); n = log.next(t) {
		if n.Owner != w.Owner { // It may have been sent behind the Ask for all.
			t.Errorf("the notice %+v, want one for %s", n, next.Owner)
		}
	}
}

// A user without rights to the table of waiters cannot wait. The holds of that user are as good as
// any.
func TestNoRightsToWaiters(t *testing.T) {
	t.Parallel()
	s := open(t)
	change(t, s, "DO $$ BEGIN CREATE ROLE impatient LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
	change(t, s, "GRANT USAGE ON SCHEMA @schema@ TO impatient")
	change(t, s, "GRANT SELECT, INSERT, UPDATE, DELETE ON @table@ TO impatient")
	poor := newPoolEngine(pgtest.OpenPool(t, strings.Replace(pgtest.Postgres().URL("postgres"), "postgres@", "impatient@", 1)), &s.options)
	t.Cleanup(func() { _ = poor.Close() })
	held := grant(t, poor, "name", time.Minute)
	queueUp(t, s, "name", time.Minute)
	req := pgtest.Request("name", time.Minute)
	req.Queue = time.Minute
	if _, err := poor.Acquire(t.Context(), req); !driver.IsNotApplied(err) || !strings.Contains(err.Error(), "distributed_locks_waiters") {
		t.Errorf("Acquire with Queue and without the right to it: %v", err)
	}
	outcomes, err := poor.Renew(t.Context(), []olddriver.RenewRequest{{Name: "name", Owner: held.Owner, TTL: time.Minute, Token: refuse(t, s, "name").Token}})
	if err != nil || outcomes[0] != olddriver.Renewed {
		t.Errorf("Renew: %v, %v", outcomes, err)
	}
	if rec, found, err := poor.Lookup(t.Context(), "name"); err != nil || !found || rec.Waiting != 0 {
		t.Errorf("Lookup: %+v, %v, %v", rec, found, err)
	}
	if !release(t, poor, held) {
		t.Error("Release: nothing was held")
	}
	release(t, poor, grant(t, poor, "other", time.Minute))
	var done bool
	query(t, poor, "SELECT @acquire_lock@('third', 'worker')", nil, &done)
	queueUp(t, s, "third", time.Minute)
	refuse(t, poor, "third")
	query(t, poor, "SELECT @release_lock@('third', 'worker')", nil, &done)
	if !done {
		t.Error("release_lock: nothing was held")
	}
}

// Through a pooler nobody can listen: waiters try at intervals.
func TestQueueThroughPooler(t *testing.T) {
	t.Parallel()
	opts := &Options{Schema: newSchema(t)}
	for what, s := range map[string]*engine{
		"pgx":          newPoolEngine(pgtest.OpenPool(t, pgtest.PgBouncer().URL("postgres")), opts),
		"database/sql": newDBEngine(pgtest.OpenSQL(t, pgtest.PgBouncer().URL("postgres")), opts),
	} {
		t.Run(what, func(t *testing.T) {
			defer s.Close()
			name := "name " + what
			held := grant(t, s, name, time.Minute)
			log := &noticeLog{make(chan olddriver.Notice, 100)}
			t.Cleanup(s.Notify(func(n olddriver.Notice) { log.notices <- n }))
			w := queueUp(t, s, name, time.Minute)
			log.expectAll(t)
			later := pgtest.Request(name, time.Minute)
			later.Queue = time.Minute
			if res, err := s.Acquire(t.Context(), later); err != nil || res.Granted || res.Queued {
				t.Errorf("Acquire through a pooler: %+v, %v, want neither Granted nor Queued", res, err)
			}
			release(t, s, held)
			claimed(t, s, w)
			release(t, s, w)
			locks := holdfast.New(newStore(s), nil)
			defer locks.Close()
			lock, err := locks.Acquire(t.Context(), name, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan error, 1)
			go func() {
				second, err := locks.Acquire(t.Context(), name, nil)
				if err == nil {
					err = second.Release()
				}
				got <- err
			}()
			if err := lock.Release(); err != nil {
				t.Error(err)
			}
			if err := <-got; err != nil {
				t.Errorf("a waiter behind a pooler: %v", err)
			}
		})
	}
}

// A waiter that gives up at the moment at which it is admitted leaves no hold behind.
func TestGiveUpBesideAdmission(t *testing.T) {
	t.Parallel()
	url := openDatabase(t, "given_up")
	s, leaver := openAt(t, url), openAt(t, url, "application_name=leaver")
	for _, text := range []string{
		`CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS $$
		 BEGIN
			WHILE NOT pg_try_advisory_xact_lock_shared(1) LOOP PERFORM pg_sleep(0.001); END LOOP;
			RETURN NULL;
		 END $$`,
		`CREATE TRIGGER pause AFTER UPDATE ON @table@ FOR EACH STATEMENT
		 WHEN (current_setting('application_name') = 'leaver') EXECUTE FUNCTION pause()`,
	} {
		change(t, s, text)
	}
	held, w := grant(t, s, "name", time.Minute), queueUp(t, s, "name", time.Minute)
	pause := leaveOpen(t, s, "SELECT pg_advisory_xact_lock(1)")
	var group sync.WaitGroup
	group.Go(func() { release(t, leaver, w) }) // The first update of holdfast_release finds no hold of w.
	pgtest.Eventually(t, "pause in the release", func() bool {
		var n int
		query(t, s, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leaver' AND wait_event = 'PgSleep'", nil, &n)
		return n > 0
	})
	release(t, s, held)
	if err := pause.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	if rec, found, err := s.Lookup(t.Context(), "name"); found || err != nil {
		t.Errorf("the name is held after the holder and the waiter have gone: %+v, %v", rec, err)
	}
}

// A try in a transaction of the caller leaves the durability of that transaction alone, also if the
// name was taken while the try waited for its row.
func TestTryLeavesCommitAlone(t *testing.T) {
	t.Parallel()
	s := openAt(t, openDatabase(t, "left_alone"))
	grant(t, s, "name", time.Hour)
	queueUp(t, s, "name", time.Hour)
	pgtest.Eventually(t, "attempt that finds the name taken in time", func() bool {
		change(t, s, "UPDATE @table@ SET expires_at = now()")
		taker := leaveOpen(t, s, "UPDATE @table@ SET expires_at = now() + interval '1 hour'")
		caller := leaveOpen(t, s, "SELECT")
		var pid int
		if err := caller.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, err := caller.Exec(t.Context(), s.expandSQL("SELECT FROM @holdfast_acquire@('name', 'other', NULL, 60000000, 0, 1, '{}', 0, false, NULL, 0)"))
			if err != nil {
				t.Error(err)
			}
		}()
		waits := false
		for late := false; !waits && !late; {
			query(t, s, "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)", []any{pid}, &waits)
			select {
			case <-answered:
				late = true
			default:
			}
		}
		if err := taker.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		<-answered
		var level string
		if err := caller.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&level); err != nil || level != "on" {
			t.Errorf("synchronous_commit is %s after a try: %v", level, err)
		}
		_ = caller.Rollback(t.Context())
		return waits || t.Failed()
	})
}

// An admission waits for the disk, whatever request makes it; a place does not.
func TestAdmissionIsDurable(t *testing.T) {
	t.Parallel()
	s := openAt(t, openDatabase(t, "durable_admissions"))
	grant(t, s, "name", time.Hour)
	a := queueUp(t, s, "name", time.Hour)
	queueUp(t, s, "name", time.Hour)
	for _, call := range []string{
		"SELECT FROM @holdfast_acquire@('name', 'other', NULL, 60000000, 0, 1, '{}', 60000000, false, 'x y', 0)",
		"SELECT @holdfast_refresh@('{name}', '{another}', '{60000000}')",
		"SELECT FROM @holdfast_release@('name', '" + a.Owner + "', 0, false)",
	} {
		for _, admits := range []bool{false, true} {
			if admits {
				change(t, s, "UPDATE @table@ SET expires_at = now()")
			}
			tx := leaveOpen(t, s, call)
			var level string
			if err := tx.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&level); err != nil || (level == "on") != admits {
				t.Errorf("synchronous_commit is %s after %s, admitting: %v, %v", level, call, admits, err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		change(t, s, "UPDATE @table@ SET expires_at = now() + interval '1 hour'")
	}
}

// A transaction with a snapshot that is older than a place does not pass it over.
func TestOlderSnapshot(t *testing.T) {
	t.Parallel()
	s := openAt(t, openDatabase(t, "older_snapshots"))
	held := grant(t, s, "name", time.Hour)
	queueUp(t, s, "name", time.Hour)
	tx := leaveOpen(t, s, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	if _, err := tx.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Fatal(err)
	}
	queueUp(t, s, "name", time.Hour)
	_, err := tx.Exec(t.Context(), s.expandSQL("SELECT @release_lock@('name', '"+held.Owner+"')"))
	if pgclient.SQLState(err) != "40001" {
		t.Errorf("release_lock by a transaction with an older snapshot: %v, want serialization_failure", err)
	}
}

// A place that can be granted no token is dropped, and the name is free.
func TestPlaceWithoutToken(t *testing.T) {
	t.Parallel()
	s := open(t)
	held := grant(t, s, "name", time.Hour)
	w := queueUp(t, s, "name", time.Hour)
	change(t, s, "UPDATE @table@ SET token = 9007199254740991")
	release(t, s, held)
	if rec, found, err := s.Lookup(t.Context(), "name"); found || err != nil {
		t.Errorf("Lookup: %+v, %v, want nobody to be admitted", rec, err)
	}
	if got := renew(t, s, w); got[0] != olddriver.RenewLost {
		t.Errorf("Renew of the place: %v", got)
	}
}

// Waiters of many clients on one name all get it as often as they want, with tokens that rise.
func TestHandOver(t *testing.T) {
	t.Parallel()
	schema := newSchema(t)
	const clients, rounds = 8, 20
	var wg sync.WaitGroup
	last := int64(0) // protected by the lock
	for range clients {
		locks := holdfast.New(newStore(openIn(t, schema, "pool_max_conns=2")), nil)
		wg.Go(func() {
			defer locks.Close()
			for range rounds {
				lock, err := locks.Acquire(t.Context(), "name", nil)
				if err != nil {
					t.Error(err)
					return
				}
				if lock.Token() <= last {
					t.Errorf("the token %d after %d", lock.Token(), last)
				}
				last = lock.Token()
				if err := lock.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// The place of a waiter that has died holds up the others until it ends, and no longer.
func TestKilledWaiter(t *testing.T) {
	t.Parallel()
	s := open(t)
	log := noticesOf(t, s)
	held := grant(t, s, "name", time.Minute)
	dying := newPoolEngine(pgtest.OpenPool(t, pgtest.Postgres().URL("postgres")), &s.options)
	began := time.Now()
	const queue = 2 * time.Second
	for range 3 {
		queueUp(t, dying, "name", queue)
	}
	if err := dying.Close(); err != nil {
		t.Error(err)
	}
	w := queueUp(t, s, "name", time.Minute)
	release(t, s, held)
	if n := log.flush(t, s); len(n) > 0 {
		t.Errorf("the notices %+v though it is the turn of another", n)
	}
	pgtest.Eventually(t, "end of the places", func() bool { return renew(t, s, w)[0] == olddriver.Renewed })
	if took := time.Since(began); took < queue {
		t.Errorf("the place behind was admitted after %v, and the first has %v", took, queue)
	}
	claimed(t, s, w)
}

// Whether it is the turn of an owner is not certain while another transaction has the row. Its
// place stays.
func TestClaimBesideOpenRow(t *testing.T) {
	t.Parallel()
	url := openDatabase(t, "claimed_rows")
	s := openAt(t, url)
	grant(t, s, "name", time.Minute)
	w := queueUp(t, s, "name", time.Minute)
	tx := leaveOpen(t, s, "SELECT FROM @table@ WHERE lock_name = $1 FOR UPDATE", "name")
	ask := w
	ask.Claim = true
	var retry *driver.RetryError
	if res, err := s.Acquire(t.Context(), ask); !errors.As(err, &retry) {
		t.Errorf("Claim beside an open row: %+v, %v, want a RetryError", res, err)
	}
	if got := renew(t, s, w); got[0] != olddriver.RenewQueued {
		t.Errorf("Renew of a place beside an open row: %v", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := claim(t, s, w); !res.Queued || !res.First {
		t.Errorf("Claim afterwards: %+v", res)
	}
}

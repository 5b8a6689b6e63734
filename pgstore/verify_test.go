//go:build unix

package pgstore

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

type heldLock struct {
	name  string
	token int64
	err   error
}

func (h heldLock) FullName() string { return h.name }
func (h heldLock) Token() int64     { return h.token }
func (h heldLock) Err() error       { return h.err }

// A holder that was overtaken around its write commits nothing if it verifies its lock in the same
// transaction, and does without.
func TestVerifyTx(t *testing.T) {
	t.Parallel()
	s, db := open(t), pgtest.OpenSQL(t, pgtest.Postgres().URL("postgres"))
	execute(t, s, "CREATE TABLE @.writes (holder integer)")
	t.Cleanup(func() { pgtest.Execute(t, pgtest.Postgres().URL("postgres"), s.sql("DROP TABLE @.writes")) })
	without, with := 0, 0
	for i := range 200 * rounds(1) {
		_, token := grant(t, s, "name", time.Minute)
		var next driver.Request
		overtake := func() {
			if ended, err := s.Break(t.Context(), "name", token); err != nil || len(ended) != 1 {
				t.Fatal(ended, err)
			}
			next, _ = grant(t, s, "name", time.Minute)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			overtake() // before the write
		}
		_, err = tx.ExecContext(t.Context(), s.sql("INSERT INTO @.writes VALUES (1)"))
		if i%2 == 1 {
			overtake() // after it
		}
		if err != nil {
			t.Error(err)
		}
		if i%4 < 2 {
			if err = s.VerifySQLTx(t.Context(), tx, heldLock{"name", token, nil}); !errors.Is(err, ErrNotHolder) {
				t.Errorf("VerifySQLTx of a holder that was overtaken: %v", err)
			}
		}
		switch err = tx.Commit(); {
		case err == nil && i%4 < 2:
			with++
		case err == nil:
			without++
		}
		release(t, s, next)
	}
	if with > 0 || without == 0 {
		t.Errorf("%d stale holders have committed with VerifyTx, and %d without", with, without)
	}
}

// Nobody else has the lock until the transaction of a holder has ended, also if the hold ends
// before. Tokens of a block, and of several readers, are those of holders, too.
func TestVerifyTxKeepsOthersOut(t *testing.T) {
	t.Parallel()
	s := open(t)
	pool := s.pool
	req := request("name", time.Second)
	req.Tokens = 8
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted {
		t.Fatal(res, err)
	}
	tx := pgtest.Begin(t, pool)
	if err := s.VerifyTx(t.Context(), tx, heldLock{"name", res.Token + 7, nil}); err != nil {
		t.Fatal(err)
	}
	if got := state(t, s, req); got != driver.Held {
		t.Errorf("beside a transaction that has verified the lock a renewal is answered %v", got)
	}
	time.Sleep(req.TTL) // The end of the hold is by the clock of the server.
	verify := func(lock heldLock) error {
		tx := pgtest.Begin(t, pool)
		defer tx.Rollback(t.Context())
		return s.VerifyTx(t.Context(), tx, lock)
	}
	if err := verify(heldLock{"name", res.Token, nil}); !errors.Is(err, ErrNotHolder) {
		t.Errorf("VerifyTx after the end of the hold: %v", err)
	}
	if res, err := s.Acquire(t.Context(), request("name", time.Minute)); !driver.IsNotApplied(err) {
		t.Errorf("Acquire beside a transaction that has verified the lock: %+v, %v", res, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	over, token := grant(t, s, "awaited", time.Second)
	w := wait(t, s, "awaited", time.Minute)
	tx = pgtest.Begin(t, pool)
	if err := s.VerifyTx(t.Context(), tx, heldLock{"awaited", token, nil}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(over.TTL)
	if got := state(t, s, w); got != driver.Waiting {
		t.Errorf("beside a transaction that has verified the lock a waiter is %v", got)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := state(t, s, w); got != driver.Held {
		t.Errorf("after the transaction a waiter is %v", got)
	}
	_, current := grant(t, s, "name", time.Minute)
	kept, token := grant(t, s, "kept", time.Minute)
	if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "kept", Owner: kept.Owner, Keep: time.Minute}); err != nil {
		t.Fatal(err)
	}
	for _, held := range []heldLock{{"name", res.Token, nil}, {"name", res.Token + 8, nil}, {"never", 1, nil}, {"kept", token, nil}, {"name", current, errors.New("released")}} {
		if err := verify(held); !errors.Is(err, ErrNotHolder) {
			t.Errorf("VerifyTx of %v: %v", held, err)
		}
	}
	lock, err := holdfast.New(s, &holdfast.Config{Prefix: "app/"}).TryAcquire(t.Context(), "name", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.VerifyTx(t.Context(), pgtest.Begin(t, pool), lock); err != nil {
		t.Errorf("VerifyTx of a lock whose Client has a prefix: %v", err)
	}
	for range 2 {
		reader := request("readers", time.Minute)
		reader.Limit = driver.Shared
		if res, err = s.Acquire(t.Context(), reader); err != nil {
			t.Fatal(err)
		}
		if err := verify(heldLock{"readers", res.Token, nil}); err != nil {
			t.Errorf("VerifyTx of a reader: %v", err)
		}
	}
}

// In a transaction whose snapshot is older than the end of a hold, that of a slot too, VerifyTx
// fails by the hold or as a failure of serialization.
func TestVerifyTxOfOldSnapshot(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		s := open(t)
		var res driver.Result
		for i := range 3 {
			req := request("slots", time.Minute)
			req.Limit, req.Place = 2, time.Minute
			r, err := s.Acquire(t.Context(), req)
			if err != nil || r.Granted != (i < 2) {
				t.Fatal(r, err)
			}
			if r.Granted {
				res = r // that of the second, beside the first
			}
		}
		tx, err := s.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(t.Context())
		if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM pg_class"); err != nil {
			t.Fatal(err)
		}
		if ended, err := s.Break(t.Context(), "slots", res.Token); err != nil || len(ended) != 1 {
			t.Fatal(ended, err)
		}
		err = s.VerifyTx(t.Context(), tx, heldLock{"slots", res.Token, nil})
		if !errors.Is(err, ErrNotHolder) && pgclient.SQLState(err) != "40001" {
			t.Errorf("%s: VerifyTx of a hold that was broken: %v", level, err)
		}
		_ = tx.Rollback(t.Context())
	}
}

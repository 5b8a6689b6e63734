//go:build unix

package pgstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgtest"
)

// A lock on the whole table, as VACUUM FULL, ALTER TABLE and Migrate take it, is
// no hold and no row: an attempt is to be made again, and a waiter waits it out.
func TestTableLock(t *testing.T) {
	t.Parallel()
	const what = "never seen"
	url := openDatabase(t, "locked_tables")
	s := openAt(t, url)
	tx := leaveOpen(t, openAt(t, url), "LOCK TABLE @table@ IN ACCESS EXCLUSIVE MODE")
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.Bound)
	defer cancel()
	_, err := s.Acquire(ctx, pgtest.Request(what, time.Minute))
	var later *driver.RetryError
	if !errors.As(err, &later) || !driver.IsNotApplied(err) || !strings.Contains(err.Error(), "the table or the row") {
		t.Errorf("Acquire while the table is locked: %v, want a RetryError that names the table", err)
	}
	locks := holdfast.New(newStore(s), nil)
	t.Cleanup(func() { _ = locks.Close() })
	if _, err := locks.TryAcquire(t.Context(), what, nil); errors.Is(err, holdfast.ErrHeld) || !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("TryAcquire while the table is locked: %v, want ErrUnavailable", err)
	}
	granted := make(chan error, 1)
	go func() {
		lock, err := locks.Acquire(t.Context(), what, &holdfast.Options{Wait: pgtest.Bound})
		if err == nil {
			err = lock.Release()
		}
		granted <- err
	}()
	select {
	case err := <-granted:
		t.Errorf("Acquire came back while the table was locked: %v", err)
	case <-time.After(2 * time.Second): // many attempts
		defer func() {
			if err := <-granted; err != nil {
				t.Errorf("Acquire: %v", err)
			}
		}()
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}

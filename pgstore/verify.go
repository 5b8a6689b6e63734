package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// ErrNotHolder is the error of VerifyTx for a hold that has ended.
var ErrNotHolder = errors.New("the lock is not held under this token any more")

// A Held is a lock that is held, as [holdfast.Lock].
//
// [holdfast.Lock]: https://pkg.go.dev/github.com/holdfast-go/holdfast#Lock
type Held interface {
	FullName() string // in the store
	Token() int64
	Err() error // why it has ended
}

// VerifyTx makes a transaction of the caller's depend on a lock: it returns [ErrNotHolder] unless
// the lock is held under its token at this moment, and lets nobody else have the lock until the
// transaction has ended. So what the transaction commits, it commits as the holder, however late
// that is; no token need be kept with the data. Call it before the first write or after the last
// one, and roll back after an error: the transaction is over then. After a rollback to a savepoint
// that is older than the call, call it again.
//
// With REPEATABLE READ and SERIALIZABLE call it first in the transaction, and repeat the whole
// transaction after a failure of serialization (SQLSTATE 40001): the lock has been renewed, or has
// ended, since the transaction's snapshot.
//
// The database must be that of the locks. End the transaction before Release, which may pass the
// lock on to another goroutine of the same Client: the transaction does not prevent that.
func (s *Store) VerifyTx(ctx context.Context, tx pgx.Tx, lock Held) error {
	_, err := tx.Exec(ctx, s.sql("SELECT @.verify($1, $2)"), pgx.QueryExecModeExec, lock.FullName(), lock.Token())
	return s.verifyErr(ctx, lock, err)
}

// VerifySQLTx is VerifyTx for a transaction of package database/sql, with any driver.
func (s *Store) VerifySQLTx(ctx context.Context, tx *sql.Tx, lock Held) error {
	_, err := tx.ExecContext(ctx, s.sql("SELECT @.verify($1, $2)"), lock.FullName(), lock.Token())
	return s.verifyErr(ctx, lock, err)
}

func (s *Store) verifyErr(ctx context.Context, lock Held, err error) error {
	if err == nil {
		if err = lock.Err(); err != nil {
			err = fmt.Errorf("%w: %w", ErrNotHolder, err)
		}
		return err
	}
	if pgclient.SQLState(err) == "HF001" {
		return fmt.Errorf("%w: %w", ErrNotHolder, err)
	}
	return s.wrapErr(ctx, err)
}

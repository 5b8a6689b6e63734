package pgstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// LockTx takes a lock for the rest of a transaction of the caller's: a [pgx.Tx]
// or a *[sql.Tx]. PostgreSQL releases it when the transaction ends, or the
// savepoint after which it was taken is rolled back; there is nothing to
// release and nothing to renew, and it works through every pooler. What the
// transaction writes is there for the next holder, who cannot have the lock
// before the commit.
//
// It waits in the server, in the order of arrival, until the lock is free, the
// server finds a deadlock (SQLSTATE 40P01), or lock_timeout or statement_timeout
// is over. Set one of these rather than a deadline of ctx: when ctx ends, the
// client library closes the connection. While it waits, the server can neither
// vacuum what the transaction may see nor finish a CREATE INDEX CONCURRENTLY;
// TryLockTx does not wait. After any error the transaction is over but for its
// rollback, and the lock is not held.
//
// The key of the lock is that of SHA256Keys(""), and so the same as that of an
// [AdvisoryStore] without Keys: they exclude each other. Do not use it for work
// that takes minutes: an open transaction holds up vacuum for the whole database.
func LockTx(ctx context.Context, tx any, name string) error {
	key, err := SHA256Keys("")(name)
	if err != nil {
		return err
	}
	return LockKeyTx(ctx, tx, key)
}

// TryLockTx is LockTx without waiting. It reports whether the lock is held.
func TryLockTx(ctx context.Context, tx any, name string) (bool, error) {
	key, err := SHA256Keys("")(name)
	if err != nil {
		return false, err
	}
	return TryLockKeyTx(ctx, tx, key)
}

// LockKeyTx is LockTx for any key.
func LockKeyTx(ctx context.Context, tx any, key Key) error {
	_, err := lockTx(ctx, tx, key, "SELECT pg_advisory_xact_lock(%s) IS NOT NULL")
	return err
}

// TryLockKeyTx is TryLockTx for any key.
func TryLockKeyTx(ctx context.Context, tx any, key Key) (bool, error) {
	return lockTx(ctx, tx, key, "SELECT pg_try_advisory_xact_lock(%s)")
}

func lockTx(ctx context.Context, tx any, key Key, statement string) (locked bool, err error) {
	// A key is digits and at most a sign and a comma: no statement needs to be
	// prepared, which a pooler may not bear.
	text := fmt.Sprintf(statement, key.literal())
	switch tx := tx.(type) {
	case pgx.Tx:
		err = tx.QueryRow(ctx, text, pgx.QueryExecModeSimpleProtocol).Scan(&locked)
	case *sql.Tx:
		err = tx.QueryRowContext(ctx, text).Scan(&locked)
	default:
		return false, fmt.Errorf("%w: a transaction is a pgx.Tx or a *sql.Tx, not a %T", driver.ErrInvalid, tx)
	}
	if err != nil {
		return false, fmt.Errorf("lock %v for the transaction: %w", key, err)
	}
	return locked, nil
}

// literal is the key as the arguments of a function of SQL.
func (k Key) literal() string {
	if k.pair {
		return fmt.Sprintf("(%d)::int, (%d)::int", int32(k.bits>>32), int32(k.bits))
	}
	return fmt.Sprintf("'%d'::bigint", k.bits)
}

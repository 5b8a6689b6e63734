package advisory

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
)

// LockTx takes a lock for the rest of a transaction of the caller's. For one of package
// database/sql there is [LockSQLTx]. PostgreSQL releases the lock when the transaction ends, or the
// savepoint after which it was taken is rolled back. There is nothing to release and nothing to
// renew, and it works through every pooler. The next holder sees everything that the
// transaction writes, since it cannot have the lock before the commit.
//
// LockTx waits in the server, in the order of arrival, until the lock is free, the server finds a
// deadlock (SQLSTATE 40P01), or lock_timeout or statement_timeout is over. Set one of these rather
// than a deadline of ctx: when ctx ends, the client library closes the connection. While it waits,
// the server can neither vacuum rows that the transaction may see nor finish a CREATE INDEX
// CONCURRENTLY; TryLockTx does not wait. After any error the transaction is over except for its
// rollback, and the lock is not held.
//
// The key of the lock is that of SHA256Keys(""), and so the same as that of an [Store]
// without Keys: they exclude each other. Do not use it for work that takes minutes: an open
// transaction holds up vacuum for the whole database.
func LockTx(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := lockNameInTx(ctx, tx, name, waitInTx)
	return err
}

// TryLockTx is LockTx without waiting. It reports whether the lock is held.
func TryLockTx(ctx context.Context, tx pgx.Tx, name string) (bool, error) {
	return lockNameInTx(ctx, tx, name, tryInTx)
}

// LockKeyTx is LockTx for any key.
func LockKeyTx(ctx context.Context, tx pgx.Tx, key Key) error {
	_, err := lockInTx(ctx, tx, key, waitInTx)
	return err
}

// TryLockKeyTx is TryLockTx for any key.
func TryLockKeyTx(ctx context.Context, tx pgx.Tx, key Key) (bool, error) {
	return lockInTx(ctx, tx, key, tryInTx)
}

// LockSQLTx is LockTx for a transaction of package database/sql.
func LockSQLTx(ctx context.Context, tx *sql.Tx, name string) error {
	_, err := lockNameInTx(ctx, tx, name, waitInTx)
	return err
}

// TryLockSQLTx is TryLockTx for a transaction of package database/sql.
func TryLockSQLTx(ctx context.Context, tx *sql.Tx, name string) (bool, error) {
	return lockNameInTx(ctx, tx, name, tryInTx)
}

// LockKeySQLTx is LockSQLTx for any key.
func LockKeySQLTx(ctx context.Context, tx *sql.Tx, key Key) error {
	_, err := lockInTx(ctx, tx, key, waitInTx)
	return err
}

// TryLockKeySQLTx is TryLockSQLTx for any key.
func TryLockKeySQLTx(ctx context.Context, tx *sql.Tx, key Key) (bool, error) {
	return lockInTx(ctx, tx, key, tryInTx)
}

// LockSharedTx is LockTx for a shared lock, which excludes exclusive locks alone: those of LockTx,
// and the holds of a [Store] that are not shared.
func LockSharedTx(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := lockNameInTx(ctx, tx, name, waitSharedInTx)
	return err
}

// TryLockSharedTx is LockSharedTx without waiting. It reports whether the lock is held.
func TryLockSharedTx(ctx context.Context, tx pgx.Tx, name string) (bool, error) {
	return lockNameInTx(ctx, tx, name, trySharedInTx)
}

// LockSharedKeyTx is LockSharedTx for any key.
func LockSharedKeyTx(ctx context.Context, tx pgx.Tx, key Key) error {
	_, err := lockInTx(ctx, tx, key, waitSharedInTx)
	return err
}

// TryLockSharedKeyTx is TryLockSharedTx for any key.
func TryLockSharedKeyTx(ctx context.Context, tx pgx.Tx, key Key) (bool, error) {
	return lockInTx(ctx, tx, key, trySharedInTx)
}

// LockSharedSQLTx is LockSharedTx for a transaction of package database/sql.
func LockSharedSQLTx(ctx context.Context, tx *sql.Tx, name string) error {
	_, err := lockNameInTx(ctx, tx, name, waitSharedInTx)
	return err
}

// TryLockSharedSQLTx is TryLockSharedTx for a transaction of package database/sql.
func TryLockSharedSQLTx(ctx context.Context, tx *sql.Tx, name string) (bool, error) {
	return lockNameInTx(ctx, tx, name, trySharedInTx)
}

// LockSharedKeySQLTx is LockSharedSQLTx for any key.
func LockSharedKeySQLTx(ctx context.Context, tx *sql.Tx, key Key) error {
	_, err := lockInTx(ctx, tx, key, waitSharedInTx)
	return err
}

// TryLockSharedKeySQLTx is TryLockSharedSQLTx for any key.
func TryLockSharedKeySQLTx(ctx context.Context, tx *sql.Tx, key Key) (bool, error) {
	return lockInTx(ctx, tx, key, trySharedInTx)
}

// The statements, for the arguments of Key.sqlLiteral.
const (
	waitInTx       = "SELECT pg_catalog.pg_advisory_xact_lock(%s) IS NOT NULL"
	tryInTx        = "SELECT pg_catalog.pg_try_advisory_xact_lock(%s)"
	waitSharedInTx = "SELECT pg_catalog.pg_advisory_xact_lock_shared(%s) IS NOT NULL"
	trySharedInTx  = "SELECT pg_catalog.pg_try_advisory_xact_lock_shared(%s)"
)

// lockNameInTx is lockInTx for the key of a name.
func lockNameInTx(ctx context.Context, tx any, name, statement string) (locked bool, err error) {
	key, err := SHA256Keys("")(name)
	if err != nil {
		return false, err
	}
	return lockInTx(ctx, tx, key, statement)
}

// lockInTx runs a statement for a key in a transaction, which is a pgx.Tx or a *sql.Tx.
func lockInTx(ctx context.Context, tx any, key Key, statement string) (locked bool, err error) {
	if tx == nil || tx == (*sql.Tx)(nil) {
		return false, fmt.Errorf("%w: the transaction is nil", driver.ErrInvalid)
	}
	// A key is digits and at most a sign and a comma: safe as text.
	statement = fmt.Sprintf(statement, key.sqlLiteral())
	switch tx := tx.(type) {
	case pgx.Tx:
		// The simple protocol prepares no statement. Some poolers support no prepared ones.
		err = tx.QueryRow(ctx, statement, pgx.QueryExecModeSimpleProtocol).Scan(&locked)
	case *sql.Tx:
		err = tx.QueryRowContext(ctx, statement).Scan(&locked)
	}
	if err != nil {
		return false, fmt.Errorf("lock %v for the transaction: %w", key, err)
	}
	return locked, nil
}

// sqlLiteral returns the key as the arguments of an SQL function.
func (k Key) sqlLiteral() string {
	if k.pair {
		return fmt.Sprintf("(%d)::int, (%d)::int", int32(k.bits>>32), int32(k.bits))
	}
	return fmt.Sprintf("'%d'::bigint", k.bits)
}

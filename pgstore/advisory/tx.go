package advisory

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
)

// TxOptions change the lock of a transaction. The zero value and nil are the defaults: the
// exclusive lock that a [Store] takes by default.
type TxOptions struct {
	Keys   Keys // as in Options
	Shared bool // a shared lock, which excludes those without Shared, and the holds of a Store
}

// LockTx takes a lock until a transaction of the caller's ends, or the savepoint after which it was
// taken is rolled back. It works through all poolers. The next holder sees all that is written, but
// not with REPEATABLE READ or SERIALIZABLE: its snapshot is older than its wait.
//
// LockTx waits in the server, in the order of arrival, until the lock is free, the server finds a
// deadlock (SQLSTATE 40P01), or lock_timeout or statement_timeout is over. Set one of these rather
// than a deadline of ctx, at whose end the client library closes the connection. After an error of
// the server, a standby's too, the lock is not held, and the transaction must be rolled back. A
// name that Keys refuses is ErrInvalid, and changes nothing. The server can neither vacuum rows
// that an open transaction may see nor finish a CREATE INDEX CONCURRENTLY: hold it for less than
// minutes.
func LockTx(ctx context.Context, tx pgx.Tx, name string, opts *TxOptions) error {
	_, err := lockInTx(ctx, tx, name, opts, false)
	return err
}

// TryLockTx is LockTx without waiting. It reports whether the lock is held.
func TryLockTx(ctx context.Context, tx pgx.Tx, name string, opts *TxOptions) (bool, error) {
	return lockInTx(ctx, tx, name, opts, true)
}

// LockSQLTx is LockTx for a transaction of package database/sql.
func LockSQLTx(ctx context.Context, tx *sql.Tx, name string, opts *TxOptions) error {
	_, err := lockInTx(ctx, tx, name, opts, false)
	return err
}

// TryLockSQLTx is TryLockTx for a transaction of package database/sql.
func TryLockSQLTx(ctx context.Context, tx *sql.Tx, name string, opts *TxOptions) (bool, error) {
	return lockInTx(ctx, tx, name, opts, true)
}

// lockInTx locks the key of a name in a transaction, which is a pgx.Tx or a *sql.Tx.
func lockInTx(ctx context.Context, tx any, name string, opts *TxOptions, try bool) (bool, error) {
	if tx == nil || tx == (*sql.Tx)(nil) {
		return false, fmt.Errorf("%w: the transaction is nil", driver.ErrInvalid)
	}
	if opts == nil {
		opts = &TxOptions{}
	}
	key, err := opts.Keys.of(name)
	if err != nil || name == "" {
		return false, cmp.Or(err, fmt.Errorf("%w: the name of the lock is empty", driver.ErrInvalid))
	}
	function, suffix, result := "pg_advisory_xact_lock", "", " IS NOT NULL" // It returns void.
	if try {
		function, result = "pg_try_advisory_xact_lock", ""
	}
	if opts.Shared {
		suffix = "_shared"
	}
	// A statement without arguments whose rows are not read is not prepared, also not by
	// database/sql with pgx: some poolers support no prepared statements. The answer is the number
	// of rows. A standby refuses the first function.
	statement := fmt.Sprintf("SELECT WHERE pg_catalog.pg_current_wal_lsn() IS NOT NULL AND pg_catalog.%s%s('%s')%s",
		function, suffix, strings.ReplaceAll(key, ",", "','"), result)
	var rows int64
	switch tx := tx.(type) {
	case pgx.Tx:
		var tag pgconn.CommandTag
		tag, err = tx.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol)
		rows = tag.RowsAffected()
	case *sql.Tx:
		var res sql.Result
		if res, err = tx.ExecContext(ctx, statement); err == nil {
			rows, err = res.RowsAffected()
		}
	}
	if err != nil {
		return false, fmt.Errorf("lock %q for the transaction: %w", name, wrapErr(err))
	}
	return rows == 1, nil
}

package advisory

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/driver"
)

// TxOptions change the lock of a transaction. The zero value and nil are the defaults: the
// exclusive lock that a [Store] without Keys takes.
type TxOptions struct {
	// Keys makes the key of the lock from its name. nil means SHA256Keys(""). With RawKeys the name
	// is the key itself, as in "42" or "1,2". Programs that are to exclude each other need the same
	// Keys.
	Keys KeyScheme

	// Shared makes the lock a shared one, which excludes exclusive locks alone: those without
	// Shared, and the holds of a [Store].
	Shared bool
}

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
// CONCURRENTLY; TryLockTx does not wait. After any error of the server the transaction is over
// except for its rollback, and the lock is not held. A name that Keys refuses is ErrInvalid, and
// changes nothing. A standby, whose locks exclude nobody on the primary, is refused.
//
// Do not use it for work that takes minutes: an open transaction holds up vacuum for the whole
// database.
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
	keys := opts.Keys
	if keys == nil {
		keys = SHA256Keys("")
	}
	key, err := keys(name)
	if err != nil || name == "" {
		return false, cmp.Or(err, fmt.Errorf("%w: the name of the lock is empty", driver.ErrInvalid))
	}
	function, shared, result := "advisory_xact_lock", "", " IS NOT NULL" // It returns void.
	if try {
		function, result = "try_advisory_xact_lock", ""
	}
	if opts.Shared {
		shared = "_shared"
	}
	// A statement without arguments whose rows are not read is not prepared, also not by
	// database/sql with pgx: some poolers support no prepared statements. The answer is the number
	// of rows.
	const standby = 2
	statement := fmt.Sprintf("SELECT FROM pg_catalog.generate_series(1, CASE WHEN pg_catalog.pg_is_in_recovery() THEN %d WHEN pg_catalog.pg_%s%s(%s)%s THEN 1 ELSE 0 END)",
		standby, function, shared, key.literals(), result)
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
	if err == nil && rows == standby {
		err = errStandby
	}
	if err != nil {
		return false, fmt.Errorf("lock %q for the transaction: %w", name, err)
	}
	return rows == 1, nil
}

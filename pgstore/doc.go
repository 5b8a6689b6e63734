// Package pgstore keeps locks in tables of PostgreSQL (13 or later), with a TTL, through any
// pooler. Package pgstore/advisory is independent of it: advisory locks of a session or a
// transaction.
//
//	store := pgstore.New(pool, nil)            // a pgxpool.Pool of the caller's
//	err := store.Migrate(ctx)                  // or once: holdfast migrate
//	locks := holdfast.New(store, nil)
//
// # Guarantees
//
// Exclusion among all programs that reach the server, as long as it forgets nothing: over a crash
// and restart too, since a grant, a renewal, a keep and a break are on disk before they are
// confirmed. Places, and a plain release that admits nobody, do not wait for the disk. Fencing
// tokens, granted in one step with the lock, that rise strictly: over expiry, break, and the loss
// of rows and of the whole table (they begin anew at the server's clock in microseconds). Expiry is
// counted by the server's clock, never from when its transaction began. After a crash of the
// holder, the lock is free when its TTL has expired.
//
// Acquisitions that come at the same time share one transaction and its wait for the disk, and so
// do releases, and the renewals of a Client. An attempt that does not wait, and is refused for an
// exclusive lock without waiters, writes nothing. The store works through poolers, in transaction
// mode too, and with any default_transaction_isolation. Transactions that the server has undone in
// favor of others are repeated until the deadline.
//
// Waiters are served in the order in which they came, over all processes. The transaction that ends
// a hold, or finds that its time is over, gives the lock to those whose turn it is. After that
// transaction their Stores are notified, each on the one connection by which it listens, which it
// makes 100 ms after its first entry. When a hold is broken, the Store that acquired it is
// notified; a Client that has adopted it learns of that at its next renewal. A notification that is
// lost costs a waiter a third of the time of its place.
//
// # Other languages
//
// Programs in other languages take the same locks by functions, each in one statement, in the
// schema of the locks, here "holdfast":
//
//	SELECT holdfast.acquire_lock('name', 'worker-7', 30, '{"job": "import"}')
//	SELECT holdfast.acquire_lock_token('name', 'worker-7', 30)
//	SELECT holdfast.acquire_slot('name', 'worker-7', 30, '{}', 10)
//	SELECT holdfast.extend_lock('name', 'worker-7', 30)
//	SELECT holdfast.release_lock('name', 'worker-7')
//	SELECT holdfast.verify('name', 1795000000000000)
//
// acquire_lock is true if the lock was taken, or extended because it was one's own.
// acquire_lock_token does the same and returns the fencing token, or null. acquire_slot takes it as
// one of 10, or with -1 as a reader. extend_lock is false if the lock is lost, and release_lock if
// it was not one's own. verify fails unless the token is that of a hold (see [Store.VerifyTx]).
//
// The TTL is in seconds, and 30 if it is left out. A holder id should belong to one acquisition (a
// UUID): any program that knows it can release the lock, and it is shown to people. Call them
// outside of transactions (autocommit): others see a lock, and a release, when it is committed.
// acquire_lock does not wait. It takes no lock for which others wait, and extends one's own.
// release_lock passes the lock on.
//
// # What can go wrong
//
// Two may hold one lock after a failover to a standby that had not got the last commits, and after
// a backup was restored. Tokens still rise as long as the server's clock does. A synchronous
// standby has all of them, if nobody cancels a commit that waits for it. With synchronous_commit or
// fsync off for the user a crash forgets locks, too. Package doctor looks for such settings.
//
// A crash of the server within three times its wal_writer_delay after a release (0.6 s in all, by
// default), or a failover to a standby that had not got it, may undo the release: the name is taken
// until its TTL expires, by nobody. An acquisition that got no answer in time and arrives after its
// own release takes the name, or a place, in the same way. A crash and a failover forget all places
// at once: the table of places is UNLOGGED. Waiters then make new ones, in another order.
//
// If the server's clock is set forward, locks expire early, while their holders still rely on them.
// If it is set back, they expire late. Tokens stay within [driver.MaxToken] until the year 2255.
//
// A transaction that stays open after it has locked the row of a lock holds up that lock: attempts
// fail after one or two seconds with a [driver.RetryError], waiting callers try again, and a hold
// that cannot be renewed for so long is lost. Attempts at other locks that are sent with them take
// as much longer, and many at once use up the pool for that time. It happens to all locks while a
// whole table is locked (VACUUM FULL, ALTER TABLE, Migrate). A transaction that stays open for long
// anywhere in the database keeps old versions of rows alive: locks become slower until it ends. To
// acquire or to release a name that is shared by 1,000 takes a millisecond longer.
//
// Nobody can listen through a pooler. Waiters behind one, without Options.Listen, look from time to
// time instead: the order is the same, and a hand-over takes up to 1.7 s.
//
// # Server set-up
//
// [Store.Migrate] makes the schema, its tables and its functions, and [Migrations] returns the
// statements for other tools. Users of the locks need USAGE on the schema, and SELECT, INSERT,
// UPDATE and DELETE on its tables, and SELECT on its view. They must trust the owner of the schema,
// and those to whom it grants CREATE: package doctor names them. A user that may write the tables
// can break locks, and one that may read them can learn the secrets. After an update of this
// package Migrate brings what has changed: until then a Store works as before, and says so in its
// log.
//
// Rows of names that are not used any more are deleted when they have been free for an hour, by the
// processes that acquire others; where nobody uses this package, call "SELECT
// holdfast.sweep_locks()".
//
// # URL
//
//	postgres://[user[:password]@][host][:port][/database][?parameters]
//	postgresql://…                  the same
//
// What is left out comes from the environment of libpq (PGHOST, PGPASSWORD, PGSSLMODE, PGSERVICE,
// ~/.pgpass and so on). Parameters:
//
//	schema               of the locks, default "holdfast"
//	listen_url           Options.Listen, escaped: the server itself, if the URL is that of a pooler
//	sslmode, target_session_attrs, connect_timeout, …   as in libpq
//	pool_max_conns, …    of pgxpool
//	application_name, statement_timeout, lock_timeout, …   settings of the session
package pgstore

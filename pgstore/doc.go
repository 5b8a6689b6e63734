// Package pgstore keeps locks in PostgreSQL (13 or later), in two ways that know
// nothing of each other: as rows of a table, with a TTL, through any pooler
// ([New], [NewDB]), and as advisory locks of a session or a transaction
// (NewAdvisory, LockTx). This page is about the table.
//
//	store := pgstore.New(pool, nil)            // a pgxpool.Pool of the caller's
//	err := store.Migrate(ctx)                  // or once: holdfast migrate
//	locks := holdfast.New(store, nil)
//
// # The table, and other languages
//
// A lock is a row of public.distributed_locks: lock_name, holder_id, acquired_at,
// expires_at, metadata (jsonb), and columns of this package's own. It is held
// while expires_at is in the future. Programs in other languages take the same
// locks by calling functions, each in one statement:
//
//	SELECT acquire_lock('name', 'worker-7', 30, '{"job": "import"}')  -- true: taken, or extended if it was one's own
//	SELECT acquire_lock_token('name', 'worker-7', 30)                 -- the same with the fencing token, or null
//	SELECT extend_lock('name', 'worker-7', 30)                        -- false: it is lost
//	SELECT release_lock('name', 'worker-7')                           -- false: it was not one's own
//
// The TTL is in seconds, 30 if it is left out. Call them outside of long
// transactions: others see a lock, and a release, when it is committed. A
// holder id should be of one acquisition (a UUID): whoever knows it can release
// the lock, and whoever calls acquire_lock with it again is not kept out.
//
// The holder_id of a lock of package holdfast is its owner's secret, which is
// made anew for each acquisition; what people see is in the column holder. A
// lock taken by acquire_lock has no holder apart from the holder_id, which is
// shown. Metadata is a JSON object that either side reads; members that are not
// strings are shown as JSON. A program that writes the table itself, without the
// functions, excludes others and is excluded if it takes a row only when
// expires_at is past; its locks have no token. Anybody who may write the table
// can break locks, and who may read it can learn the secrets.
//
// # Guarantees
//
// Exclusion among all who reach the server, as long as it forgets nothing: over
// a crash and restart too, since a lock is on disk before it is granted. So is
// every other change but a plain release, for which nobody waits.
// Fencing tokens, granted in one step with the lock, that rise strictly: over
// expiry, break, the loss of rows and of the whole table (the token of a row
// that was lost begins anew at the server's clock in microseconds). Expiry is
// counted by the server's clock, read when the statement has come, never when its
// transaction began. A holder that crashes is succeeded when its TTL has run out.
//
// Each verb is one statement and one round trip, in a transaction of its own; a
// batch of renewals is one, too, and so are releases that come at the same time
// in large numbers. (An acquisition is two if the name is no longer
// as this Store saw it last.) An attempt that is refused writes nothing. It
// works through poolers, in transaction mode too, since nothing is left in a
// session, and whatever default_transaction_isolation is. A reply that was lost
// does no harm: the same acquire sent again is recognised.
//
// Waiters are woken by LISTEN and NOTIFY, on one connection for each Store that
// somebody waits in. A waiter marks the row, at most once in half a minute, and
// only a release that finds a mark notifies, by a statement of its own
// afterwards. Releases by release_lock or by hand do not notify, nor can anybody
// listen through a pooler: waiters then try at intervals.
//
// # What can go wrong
//
// Two may hold one lock after a failover to a standby that had not got the last
// commits, and after a backup was restored. [Options].RequireStandby rules the
// former out, if a synchronous standby is the one that is promoted; tokens
// still rise as long as the server's clock does. With SynchronousCommit "off", an UNLOGGED
// table or fsync off a crash forgets locks, too. [Store.Warnings] looks for
// settings of this kind.
//
// A crash of the server within three times its wal_writer_delay after a release
// (0.6 s in all, by default), or a failover to a standby that had not got it, may
// undo the release: the name is taken until its TTL runs out, by nobody. A release
// that keeps the name, Break and release_lock are not undone, nor is a release
// after which another has been granted the lock. [Options].DurableRelease rules
// it out, for a second wait for the disk.
//
// If the server's clock is set forward, locks run out early, while their
// holders believe in them; if it is set back, they run out late.
//
// A statement that was sent on a connection that then hung may reach the server
// long after its caller has given up, and has released the lock in vain: the
// lock is taken until its TTL runs out then, by nobody.
//
// A transaction that somebody leaves open after it has locked the row of a
// lock holds up that lock, and no other. A transaction that stays open
// for long anywhere in the database keeps old versions of rows alive: pages grow,
// and locks become slower, until it ends.
//
// # Server set-up
//
// [Store.Migrate] makes the table and the functions; [Migrations] returns its
// statements for other tools. Those who use the locks need USAGE on the schema
// and SELECT, INSERT, UPDATE and DELETE on the table. Do not make an index on
// expires_at: updates would no longer stay within their pages.
//
// Rows of names that are not used any more are deleted when they have been free
// for an hour, by whoever happens to add new ones; where nobody uses this
// package, call "SELECT sweep_locks()" from time to time.
//
// A lock needs no connection while it is held. Behind PgBouncer the store finds
// out by itself that statements cannot be prepared there.
//
// # URL
//
//	postgres://[user[:password]@][host][:port][/database][?parameters]
//	postgresql://…                  the same
//
// What is left out comes from the environment of libpq (PGHOST, PGPASSWORD,
// PGSSLMODE, PGSERVICE, ~/.pgpass and so on). Parameters:
//
//	schema               of the table, default "public"
//	table                default "distributed_locks"
//	synchronous_commit   Options.SynchronousCommit
//	durable_release      true for Options.DurableRelease
//	require_standby      true for Options.RequireStandby
//	listen               false for Options.NoListen
//	sslmode, sslrootcert, sslcert, sslkey, target_session_attrs, connect_timeout, …   as in libpq
//	pool_max_conns, …    of pgxpool
//	application_name, options, search_path, statement_timeout, lock_timeout, timezone, …   settings of the session
package pgstore

// Package pgstore keeps locks as rows of a table of PostgreSQL (13 or later), with a TTL, through
// any pooler. Package pgstore/advisory is independent of it: advisory locks of a session or a
// transaction.
//
//	store := pgstore.New(pool, nil)            // a pgxpool.Pool of the caller's
//	err := store.Migrate(ctx)                  // or once: holdfast migrate
//	locks := holdfast.New(store, nil)
//
// # The table, and other languages
//
// A lock is a row of public.distributed_locks: lock_name, holder_id, acquired_at, expires_at,
// metadata (jsonb), and columns of this package's own. It is held while expires_at is in the
// future. Programs in other languages take the same locks by calling functions, each in one
// statement:
//
//	SELECT locks.acquire_lock('name'::text, 'worker-7'::text, 30::integer, '{"job": "import"}'::jsonb)  -- true: taken, or extended if it was one's own
//	SELECT locks.acquire_lock_token('name'::text, 'worker-7'::text, 30::integer)                        -- the same with the fencing token, or null
//	SELECT locks.extend_lock('name'::text, 'worker-7'::text, 30::integer)                               -- false: it is lost
//	SELECT locks.release_lock('name'::text, 'worker-7'::text)                                           -- false: it was not one's own
//
//	SELECT locks.acquire_slot('name'::text, 'worker-7'::text, 30::double precision, '{}'::jsonb, 10::integer)
//
// The last takes a lock together with others, as Options.Limit does, and returns the token or null;
// with a limit of -1 it is that of Options.Shared. extend_lock and release_lock are the same for
// these. A holder of a share that calls acquire_lock, or acquire_slot for a share of another kind,
// gets null or false, until it has released what it has.
//
// Here the schema is "locks" (Options.Schema). Write the schema, and a cast on every argument, the
// TTL too (a driver may send 30 as smallint, bigint, numeric or text): without them an overload
// that another user has made in a schema of the search_path may be called instead, with the rights
// of the caller. The TTL is in seconds, integer or double precision; it may be left out (30), and
// so may the metadata. A holder id should belong to one acquisition (a UUID): any program that
// knows it can release the lock, and a program that calls acquire_lock with it again is not kept
// out.
//
// Call them outside of transactions: others see a lock, and a release, when it is committed. Some
// libraries begin a transaction by themselves, at the first statement. In Python:
//
//	with psycopg.connect(url, autocommit=True) as db:    # else nothing is committed until the end
//	    taken = db.execute("SELECT locks.acquire_lock(%s::text, %s::text, %s::double precision)", (name, holder, 30.0)).fetchone()[0]
//
// In a transaction of the REPEATABLE READ or SERIALIZABLE level they may fail with
// serialization_failure (40001), in one with savepoints with deadlock_detected (40P01); PREPARE
// TRANSACTION is refused after a release_lock that has notified a waiter.
//
// acquire_lock does not wait, and does not overtake: it is false while clients of this package wait
// for the lock. A program that calls it again and again gets the lock when none of them waits, and
// on a name for which one always does, never: the command "holdfast run" waits in line for it.
// release_lock passes the lock on to the first waiter.
//
// While a transaction that has called one of them, or has locked the row, is open, the holder of the
// lock is not known, and the lock is not granted. After a second, attempts fail with a
// [driver.RetryError], and the functions with lock_not_available (55P03).
//
// The holder_id of a lock of package holdfast is its owner's secret, which is made anew for each
// acquisition; the column holder is for people. A lock taken by acquire_lock has no holder apart
// from the holder_id, which is shown. Metadata is a JSON object that either side reads; members
// that are not strings are shown as JSON. A program that writes the table itself, without the
// functions, excludes others and is excluded if it takes a row only when expires_at is past; its
// locks have no token, and the waiters for them go on waiting until the next of them renews its
// place. A user that may write the table can break locks, and one that may read it can learn the
// secrets.
//
// # Guarantees
//
// Exclusion among all programs that reach the server, as long as it forgets nothing: over a crash
// and restart too, since a lock is on disk before it is granted. So is every other change except a
// plain release, which does not wait for the disk. Fencing tokens, granted in one step with the
// lock, that rise strictly: over expiry, break, the loss of rows and of the whole table (the token
// of a row that was lost begins anew at the server's clock in microseconds). Expiry is counted by
// the server's clock, read when the statement has arrived, never when its transaction began. After
// a crash of the holder, the lock is free when its TTL has expired.
//
// Each verb is one statement and one round trip, in a transaction of its own; a batch of renewals
// is one, too. Releases and acquisitions that come at the same time in large numbers share one
// transaction and its wait for the disk. (An acquisition or a release is two if the name is no
// longer as this Store saw it last.) An attempt that is refused and does not wait writes nothing.
// The store works through poolers, in transaction mode too, since nothing is left in a session, and
// with any default_transaction_isolation. A lost reply does no harm: the same acquire sent again is
// recognized.
//
// Waiters are served in the order in which they came, over all processes. Each has a row in the
// table distributed_locks_waiters, which it renews. The transaction that releases a lock, breaks
// it, or finds that its time is over, gives it to the first waiter that is still there, and waits
// for the disk as an acquisition does. A statement of its own then notifies the waiter by NOTIFY,
// on a channel of its Store, which has one connection that listens after the first wait.
// release_lock notifies at its commit. A notification that is lost costs a waiter a third of the
// time of its place, and the place of a process that has died the rest of that time.
//
// The holds of a lock that several hold at once have rows in the table distributed_locks_shares,
// each with an end and a token of its own; the row of the lock ends with the last of them. All of
// them change one row, so that changes of one name are committed one after the other: expect some
// hundred a second.
//
// The table of waiters is UNLOGGED: a place is not written to the log, and a crash of the server
// forgets the queues. The waiters then make new places, in another order. No connection can listen
// through a pooler: waiters there try at intervals, and get the lock when nobody else is in line.
// Readers that never pause can keep such a writer out.
//
// # What can go wrong
//
// Two may hold one lock after a failover to a standby that had not got the last commits, and after
// a backup was restored; tokens still rise as long as the server's clock does. A synchronous standby
// has all of them, if its operator sees to it that no other is promoted, that nobody empties
// synchronous_standby_names, and that nobody cancels a commit that waits for it. Every change commits
// as the server is set for the user, except plain releases: with synchronous_commit off, an UNLOGGED
// table or fsync off a crash forgets locks, too. Package doctor looks for settings of this kind.
//
// While a synchronous standby does not reply, an acquisition has the row of the name open until its
// caller gives up, and other attempts fail as beside any open transaction.
//
// A crash of the server within three times its wal_writer_delay after a release (0.6 s in all, by
// default), or a failover to a standby that had not got it, may undo the release: the name is taken
// until its TTL expires, by nobody. A release that keeps the name, Break and release_lock are not
// undone, nor is a release after which another has been granted the lock.
//
// If the server's clock is set forward, locks expire early, while their holders still rely on them;
// if it is set back, they expire late.
//
// A statement that was sent on a connection that then hung may reach the server long after its
// caller has given up, and has released the lock in vain: the lock is taken until its TTL expires
// then, by nobody.
//
// A transaction that stays open after it has locked the row of a lock holds up that lock, and no
// other: attempts fail after a second, waiting callers try again, and renewals and releases have no
// outcome until it has ended. A hold that cannot be renewed for so long is lost. A transaction that
// stays open for long anywhere in the database keeps old versions of rows alive: pages grow, and
// locks become slower, until it ends.
//
// While the whole table is locked (VACUUM FULL, ALTER TABLE, REINDEX, Migrate), attempts fail with
// a [driver.RetryError], or without a reply: waiting callers try again.
//
// # Server set-up
//
// [Store.Migrate] makes the table and the functions; [Migrations] returns its statements for other
// tools. Users of the locks need USAGE on the schema and SELECT, INSERT, UPDATE and DELETE on the
// table and on those of the waiters and the shares, distributed_locks_waiters and
// distributed_locks_shares. A user without the rights to those two cannot wait, nor hold a lock
// together with others, and can do the rest. Do not make an index on expires_at: updates would no
// longer stay within their pages. Migrate refuses a table that is not as it makes it, and names the
// difference. Tables that a development version has made are refused, too: make them anew.
//
// Give the locks a schema of their own, in which only its owner may create ([Options].Schema;
// Migrate creates it). In the schema "public", the default, everybody may in databases made before
// PostgreSQL 15. The statements of this package and its functions run nothing that others have made
// there, but calls without casts may; package doctor names the users that may create, and
// functions of others beside ours. Migrate refuses a table or a function that belongs to another
// user, except those of a migration role while there is nothing to do. All users of the locks must
// trust the owner of the table and of its schema: triggers of that owner would run with their
// rights.
//
// Rows of names that are not used any more are deleted when they have been free for an hour, by the
// process that happens to add new ones; where nobody uses this package, call "SELECT
// locks.sweep_locks()" from time to time.
//
// A lock needs no connection while it is held. Behind PgBouncer the store detects by itself that
// statements cannot be prepared there.
//
// # URL
//
//	postgres://[user[:password]@][host][:port][/database][?parameters]
//	postgresql://…                  the same
//
// What is left out comes from the environment of libpq (PGHOST, PGPASSWORD, PGSSLMODE, PGSERVICE,
// ~/.pgpass and so on). Parameters:
//
//	schema               of the table, default "public"
//	table                default "distributed_locks"
//	listen               false for Options.NoListen
//	sslmode, sslrootcert, sslcert, sslkey, target_session_attrs, connect_timeout, …   as in libpq
//	pool_max_conns, …    of pgxpool
//	application_name, options, search_path, statement_timeout, lock_timeout, synchronous_commit, …   settings of the session
package pgstore

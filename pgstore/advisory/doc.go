// Package advisory keeps locks as advisory locks of PostgreSQL sessions, which need no table and
// write nothing: an acquisition and a release take about as long as SELECT 1. [LockTx] and its like
// take such a lock for one transaction of the caller's.
//
//	store := advisory.New(pool, nil)           // a pgxpool.Pool of the caller's
//	locks := holdfast.New(store, nil)
//
// # Guarantees
//
// Exclusion among all sessions of one database that lock the same keys, other programs included, as
// long as the server runs. A lock lives in the session that acquired it, and is free as soon as the
// server sees the end of the connection, so at once when its holder crashes. A hold that is not
// renewed is ended by its own process. If the process hangs, or its network is cut, the server ends
// the session when it has heard nothing for a second longer than the longest TTL that the session
// has had (idle_session_timeout, PostgreSQL 14 or later; never more than 24 days).
//
// One connection has all locks that were free when they were acquired. They are lost together, and
// cannot be renewed or released through another Store. A connection that is in doubt, or whose
// server does not reply for four seconds (14 to a session that waits), is closed. A renewal asks
// whether the session is alive, except within a second of the last statement of a wait.
//
// An owner that waits has a session of its own, which blocks in pg_advisory_lock, for ten seconds
// at a time. Each time it goes to the end of the server's queue, so that long waits lose their
// order, and the server logs the error. An owner that gets its lock keeps the session until it has
// released the lock. There are at most Options.MaxWaiters such sessions. Further owners try at
// intervals, and get nothing while others wait in the server.
//
// Holds are exclusive: the server would grant a session more shared locks of a key past a writer
// that waits. The server stores only the key of a lock, so there are no shared, limited, detached
// or kept locks, and no List, Break, Metadata or Floor. [LockTx] has shared locks.
//
// # What can go wrong
//
// Anything that ends a session frees its locks while their holder may still be at work:
// pg_terminate_backend, a crash or restart of the server, a failover, a network device that resets
// connections. The holder is notified in a tenth of a second where the end of the connection
// reaches it, and at its deadline where it does not. Until then two may hold one lock, and only
// tokens distinguish them, if there is a TokenSequence. A program that must not run twice in that
// case is better served by package pgstore.
//
// A transaction-level pooler in the path would grant a lock twice: the Store detects poolers when
// it connects, and refuses all of them. A standby has locks of its own, and is refused, and so is a
// former primary that takes no writes: its sessions are lost with their next request.
//
// A session that waits holds up vacuum and CREATE INDEX CONCURRENTLY, for up to ten seconds. A
// process that hangs while it waits is granted the key in its turn, until the server ends its
// session. The server's sessions share a lock table of fixed size (max_locks_per_transaction): when
// it is full, the statements of other programs fail as well. Each thousand locks that a session
// holds make every statement of it about a tenth of a millisecond slower.
//
// # Server set-up
//
// None without tokens; for them, the sequence ([Store.Migrate]). The user may need
// pg_read_all_stats to see all columns of [Store.Locks].
//
// # URL
//
//	postgres+advisory://[user:password@]host[:port]/database
//
// with the parameters of libpq, its environment variables, and keys (sha256, the default, or raw),
// namespace (of the keys of sha256), tokens (Options.TokenSequence) and max_waiters.
package advisory

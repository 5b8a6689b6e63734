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
// long as the server runs. A lock lives in the session that acquired it. It is free as soon as the
// server sees the end of the connection, so at once when its holder crashes. The Store sees that
// end within milliseconds too ([Store.Notify]). If a holder hangs, or its network is cut,
// the server ends its session when its TTL has expired (idle_session_timeout, PostgreSQL 14 or
// later; counted in whole milliseconds, never as less than a second, and never as more than 24
// days). It can end a session only as a whole, so each TTL in use has a session of its own. A Store
// has at most four: further TTLs share one with a longer TTL, and a holder that hangs keeps their
// locks for that.
//
// Only pg_try_advisory_lock and its like are used: nothing ever waits inside the server, where it
// would hold up vacuum and CREATE INDEX CONCURRENTLY. Every unlock is verified. A connection that
// is in doubt is closed, and the session that may remain at the server is ended before another is
// used, so that a client is never locked out by its own session.
//
// A renewal checks whether the session is alive, once for all its locks. The locks of one session
// are kept or lost together, and cannot be renewed or released through another Store. An Acquire
// that is sent again through another Store is a request of its own.
// Request.Detached is not supported, nor are List, Break, Metadata and Keep, since the
// server stores nothing of a lock but its key. [Store.Lookup] reports whether a name is
// held, and by which session. [Store.Locks] shows the holders and the waiters.
//
// Shared holds (driver.Shared) are shared locks of the same key, so that programs that call
// pg_advisory_lock_shared take part; limited ones are not supported. Each is granted, renewed and
// released on its own, and counts for Options.MaxLocks. A writer that waits and finds shared holds
// in its way locks the gate, one more such key, on the connection that listens, until it is granted
// the name, its Release, or the end of its Place. Meanwhile shared requests of every Store are refused.
// One writer at a time has the gate. When it is granted the name, the next writer is notified, and
// locks the gate during that hold. The gate of a writer that crashes is unlocked at once, that of
// one that hangs within a minute.
//
// Waiters are notified by LISTEN and NOTIFY, on one more connection for each Store that has
// waiters. They have no places: the first to ask gets the lock. A wait begins with the first
// Acquire of an owner that has a Place and finds the name held, which then makes a
// second attempt. It ends with a grant, with a Release, or when its Place is over.
// During a wait, and for a second afterwards, that connection holds a shared lock on a second key
// (a pair of integers, the first of them negative, from a hash of the lock's key). Only a release
// that finds it notifies. It does so by a statement of its own afterwards, on a connection of the
// pool. If the pool is used up for two seconds, it does not. Other programs do not notify, nor does
// the server when a session ends: waiters notice that when they have waited as long again
// as before, after 2 s at most. If the connection that listens hangs, the Acquire of a new waiter
// waits for it for a second. Its result is not Queued then, and the waiter tries at intervals until
// there is another connection.
//
// # What can go wrong
//
// Anything that ends a session frees its locks while their holder may still be at work:
// pg_terminate_backend, a crash or restart of the server, a failover, a network device that resets
// connections. The holder is notified in milliseconds where the end of the connection reaches it,
// and at its deadline where it does not. Until then two may hold one lock, and only tokens
// distinguish them, if there is a TokenSequence. A program that must not run twice in that case is
// better served by package pgstore.
//
// A transaction-level pooler in the path would grant a lock twice: the Store detects it when it
// connects, and refuses. A standby has locks of its own, and is refused.
//
// A program that waits in pg_advisory_lock is overtaken only by readers whose session has the key
// already: the server grants such a session a further shared lock at once. The program may therefore
// wait for as long as the shared holds of one Store overlap. Native readers and shared locks of
// LockTx ignore the gate of a writer of a Store. Readers may also follow a writer whose hold is so
// short that the next writer has not locked the gate yet. It locks the gate then.
//
// With PostgreSQL 13 a holder that hangs keeps its locks until it ends.
//
// At the end of each statement the server goes through all locks of the session: each thousand that
// is held makes every statement about a tenth of a millisecond slower. The lease table has no such
// cost.
//
// # Server set-up
//
// None without tokens; for them, the sequence. The user may need pg_read_all_stats to see all
// columns of [Store.Locks].
//
// # URL
//
//	postgres+advisory://[user:password@]host[:port]/database
//
// with the parameters of libpq (sslmode, target_session_attrs and so on), its environment
// variables, and
//
//	keys            sha256, the default, or raw: see KeyScheme
//	namespace       of the keys of sha256, default none
//	tokens          Options.TokenSequence
//	session_pooled  Options.SessionPooled, true or false
//	max_locks       Options.MaxLocks
package advisory

// Package holdfast is distributed locks: of all goroutines, processes and hosts
// that share a store, one at a time holds the lock of a name, or as many as
// tolerate each other.
//
//	locks := holdfast.New(redisstore.New(client, nil), nil)
//	defer locks.Close()
//
//	err := locks.Do(ctx, "invoices/42", nil, func(ctx context.Context) error {
//		token := holdfast.FromContext(ctx).Token()
//		return ship(ctx, token) // ctx ends if the lock is lost
//	})
//
// # Taking a lock
//
// [Client.Acquire] waits until it has the lock, for ever unless its context or
// [Options].Wait ends the wait, or the store does not answer for [Config].MaxOutage
// (10 s). [Client.TryAcquire] makes one attempt. [Client.Do]
// waits for the lock, runs a function under it, and releases it. Inside of the
// function [FromContext] returns the Lock; elsewhere it returns nil. [Client.TryDo]
// makes one attempt, [DoValue] returns the value of the function, and [Lock.Do] runs
// a function under a lock that is held already.
//
// A waiter gets the lock when it is released, and when its holder has crashed. Goroutines
// of one Client exclude each other, and are served in the order of their calls. So are
// the Clients of a store that keeps a queue (Guarantees().Fair); goroutines of one Client
// may pass a lock on among themselves for a moment before ([Config].LocalTurn).
//
// # Readers and writers, and slots
//
// [Options].Shared takes a lock together with other readers, where a plain acquisition
// is the writer. [Options].Limit is a semaphore: up to that many hold the lock
// together. Each holder has a lease and a token of its own, and waiters are served in the same order as any others.
//
// # Holding it
//
// The store keeps a lock for its TTL, 30 s by default. The Client renews it from a
// third of the TTL on, until Release. So the TTL defines how soon a crashed holder is
// replaced, and does not limit the work; [Options].MaxHold does.
//
// [Lock.Deadline] is the time until which the holder can rely on the lock. It
// counts from before the request was sent, on a clock that cannot be set, and has
// a margin for drift, so that it ends before the store gives the lock to another
// holder. At that moment [Lock.Context] ends, whatever the network does. A renewal
// that fails is not a loss. An answer that the lock has another owner is.
//
// # Losing it
//
// No lock with a TTL can keep a holder from acting late: the process can be paused
// between its last check of the lock and its act, for longer than the TTL. The
// resource can, if it refuses a fencing token ([Lock.Token]) smaller than one it
// has seen. Where the resource cannot do that, let the work end when Lock.Context
// does, check [Lock.Err] before each step that matters, and choose a TTL longer
// than the pauses you expect.
//
// # Several locks, and several processes
//
// [Client.AcquireAll] takes several locks, all or none, in an order in which
// callers cannot deadlock. [Client.DoAll] runs a function under them.
//
// [Lock.HandOver] turns a lock into a [Ticket], with which another process continues
// to hold it: [Client.Adopt].
//
// # Ending
//
// [Client.Close] and [Client.ReleaseAll] first end the contexts of all locks, then
// wait for the work that runs under Do, but not beyond its lock's deadline, and
// then release. Work under Do must not call them: they would wait for it until the
// deadline of its lock. In a server, call http.Server.Shutdown before Close: its
// handlers hold locks.
//
// # Errors
//
// Each fact has one error, for errors.Is. [ErrHeld] means that the lock is held, as
// the store reports it. [ErrUnavailable] means that the store gave no answer; it
// never means that the lock is held. [ErrLost] means that the lock was held
// and is held no longer. After an error of an acquisition nothing is held. Do
// returns nil only if the lock was held until the end of the work.
//
// # Stores
//
// What is promised depends on the store. [Client.Guarantees] reports it, and the
// package comment of each store lists what can go wrong. A store is opened by a URL with [Open],
// or made by its package and given to [New]:
//
//   - memstore: the goroutines of one process; tests, in virtual time too
//   - filestore: the processes of one host, without a server
//   - redisstore: a Redis or Valkey server, Sentinel or Cluster, shared with
//     clients of other languages
//   - quorumstore: a majority of other stores; of Redis servers it is Redlock
//   - etcdstore: a cluster of etcd (a module of its own)
//   - pgstore: a table of PostgreSQL, shared with other languages
//   - pgstore/advisory: advisory locks of PostgreSQL; its LockTx: for one
//     transaction
//
// Package driver is the contract for other stores, and package drivertest tests
// them.
//
// # Recipes
//
//   - election: one leader among replicas
//   - once: work that is done once in each period, or once for each job; with
//     once/gocronlock and once/cronlock for schedulers
//   - ratelimit: at most n calls in any window
//   - httplock: one HTTP request at a time for each key, or its reads together
//
// # Watching
//
// [Client.Lookup] and [Client.List] show the holders, [Client.Locks] the locks of this
// Client; [Client.Break] and [Client.BreakToken] end a hold by force. [Client.Ping] is
// for readiness probes. Package lockui is a page that shows the locks of several stores,
// live. [Config].Logger gets lost locks and failing requests. [Config].Hooks are for metrics
// and traces; metrics/holdfastprom and metrics/holdfastotel, modules of their own, make those
// of Prometheus and OpenTelemetry. Tests of programs use package memstore, which works in the
// virtual time of testing/synctest.
//
// The guide in docs/guide.md has examples of all of this.
package holdfast

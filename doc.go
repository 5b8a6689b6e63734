// Package holdfast is distributed locks: of all goroutines, processes and hosts that share a store,
// one at a time holds the lock of a name, or as many as tolerate each other.
//
//	locks := holdfast.New(redisstore.New(client, nil), nil)
//	defer locks.Close()
//
//	err := locks.Do(ctx, "invoices/42", nil, func(ctx context.Context) error {
//		token := holdfast.FromContext(ctx).Token()
//		return ship(ctx, token) // ctx ends if the lock is lost
//	})
//
// # Taking and holding a lock
//
// [Client.Acquire] waits until it has the lock, [Client.TryAcquire] makes one attempt, and
// [Client.Do] runs a function under the lock. A waiter gets the lock when it is released, and when
// its holder has crashed. Goroutines of one Client are served in the order of their calls, and so
// are the Clients of a store with a queue (Guarantees().Queue). [Options].Shared is the reading
// side of a read-write lock, and [Options].Limit makes a semaphore. [Client.AcquireAll] takes
// several locks, all or none. [Lock.HandOver] lets another process continue a hold.
//
// The store keeps a lock for its TTL, 30 s by default. The Client renews it each third of the TTL,
// or more often, until Release. So the TTL is how soon a crashed holder is replaced, and does not
// limit the work; [Options].MaxHold does.
//
// # Losing it
//
// [Lock.Deadline] is the time until which the holder can rely on the lock. It counts from before
// the request was sent, on a clock that cannot be set, less a margin for drift: so it ends before
// the store gives the lock to another. At that moment [Lock.Context] ends, whatever the network
// does. A renewal that fails is not a loss. An answer that the lock has another owner is.
//
// No lock with a TTL can keep a holder from acting late: the process can be paused between its last
// check of the lock and its act. The resource can, if it refuses a fencing token ([Lock.Token])
// smaller than one it has seen. Where it cannot, let the work end when Lock.Context does, check
// [Lock.Err] before each step that matters, and choose a TTL longer than the pauses you expect.
//
// # Ending
//
// [Client.Close] and [Client.ReleaseAll] end the contexts of all locks, wait for the work under Do,
// but not beyond its lock's deadline, and release. Work under Do must not call them. In a server,
// call http.Server.Shutdown before Close: its handlers hold locks.
//
// # Errors
//
// Each fact has one error, for errors.Is. [ErrHeld] means that the lock is held, as the store
// reports it. [ErrUnavailable] means that the store gave no answer; it never means that the lock is
// held. [ErrLost] means that the lock was held and is held no longer. After an error of an
// acquisition nothing is held. Do returns nil only if the lock was held until the end of the work.
//
// # Stores and recipes
//
// A store is opened by a URL with [Open], or made by its package and given to [New]: memstore (one
// process, and tests), filestore (one host, without a server), redisstore, pgstore and
// pgstore/advisory, etcdstore and s3store (modules of their own), and quorumstore (a majority of
// others; of Redis servers it is Redlock). [Client.Guarantees] is what a store promises, and the
// package comment of each lists what can go wrong. Package driver is the contract for others,
// package drivertest its test.
//
// Recipes are packages election, once (with adapters to schedulers), ratelimit and httplock.
// Package lockui is a page of locks, and metrics/holdfastprom and metrics/holdfastotel make
// metrics. The guide in docs/guide.md has examples of all of this.
package holdfast

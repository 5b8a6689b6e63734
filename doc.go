// Package holdfast is distributed locks: "only one of us does this, right now",
// across goroutines, processes and hosts, on a store that you choose.
//
//	locks := holdfast.New(memstore.New(), nil)
//	lock, err := locks.Acquire(ctx, "invoices/42", nil)
//	if err != nil { … }
//	defer lock.Release()
//	ship(lock.Context(), lock.Token())
//
// # Taking a lock
//
// [Client.Acquire] waits until it has the lock; [Client.TryAcquire] makes one
// attempt; [Client.Do] runs a function under the lock. Who waits is woken when
// the lock is released, and takes it over when its holder is gone. Goroutines
// of one Client are served in the order in which they came.
//
// # Holding it
//
// The store keeps a lock for its TTL, 30 s by default. The Client renews it,
// from a third of the TTL on, until Release: so the TTL says how soon a crashed
// holder is replaced, and not how long the work may take. The holder knows at
// any time until when it can rely on the lock ([Lock.Deadline]): counted from
// before the request was sent, on a clock that nobody can set, with a margin
// for drift, so that it ends before the store gives the lock to another. At
// that moment [Lock.Context] ends, whatever the network does. A renewal that
// fails is not yet a loss; an answer that the lock is not ours is one at once.
//
// [Client.AcquireAll] takes several locks at once, in an order in which callers
// cannot lock each other out. [Lock.HandOver] gives a lock away as a [Ticket],
// with which another process goes on by [Client.Adopt].
//
// # Losing it
//
// No lock with a TTL can keep a holder from acting late: the process can be
// paused between its last look and its act, for longer than the TTL. What can
// is the resource, if it refuses a fencing token ([Lock.Token]) smaller than
// one it has seen. Where the resource cannot do that, let the work end when
// Lock.Context does, look at [Lock.Err] before each step that matters, and
// choose a TTL longer than the pauses you expect.
//
// # Stores
//
// What is promised depends on the store; [Client.Guarantees] says it, and each
// store's package comment says what can go wrong. A store is opened by a URL
// with [Open], or made by its package and handed to [New]:
//
//   - memstore: the goroutines of one process; tests, in virtual time too
//   - filestore: the processes of one host, without a server
//   - redisstore: one Redis node, Sentinel or Cluster
//
// Package driver is the contract for further ones, and package drivertest its
// conformance suite.
//
// # Errors
//
// Each fact has one error, for errors.Is: [ErrHeld] is the answer "somebody else
// has it", and never a fault; [ErrUnavailable] says that the store could not be
// asked, and never that the lock is held; [ErrLost] that a lock is no longer
// ours. After any error of an acquisition nothing is held.
package holdfast

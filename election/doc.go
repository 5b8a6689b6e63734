// Package election elects one leader among the replicas of a program, on any
// store of package holdfast.
//
//	e := election.New(locks, "scheduler", nil)
//	err := e.Run(ctx, func(ctx context.Context, term election.Term) error {
//		return schedule(ctx, term.Token) // until ctx ends
//	})
//
// [Election.Run] stands as a candidate, runs the function while this replica
// leads, and stands again when the term was lost. [Election.Leader] and
// [Election.Observe] tell anybody who leads, candidate or not.
//
// # Guarantees
//
// A term is a hold of the lock of the election's name. As long as the store
// keeps its promises (see its package comment), no two terms are valid at the
// same time: the context of a term ends before the store can give the office
// to another. Its Err method reads the clock at each call, so that it is right
// at once after the process was paused, when the Done channel and contexts
// derived from this one may be a moment late. Tokens rise strictly from term to term.
//
// After a resignation a waiting candidate is elected within 100 ms on stores
// that wake waiters (Guarantees().Push), else within Backoff.Max of its Client.
// After a crash of the leader, or a cut of its network, another is elected when
// the TTL has run out, or at once where the store sees the crash
// (Guarantees().HolderCrash).
//
// # What can go wrong
//
// A leader that is paused between a look at its context and the act that
// follows acts late, as the holder of any lock with a time limit does. Hand
// Term.Token to whatever the leader changes, and let that refuse a token
// smaller than one it has seen.
//
// A function that goes on after its context has ended keeps its replica from
// standing again, but nobody else from leading.
//
// The options of the Client's Config count as well: a Client for elections must
// not have MinHold, MaxHold, NoRenew or Reentrant among them.
//
// # When not to use it
//
// Where each job is to be done once and it does not matter by whom, package
// once needs no leader and no standing connection. Where every act must be
// exclusive for itself, take a lock for each.
package election

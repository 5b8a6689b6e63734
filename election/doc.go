// Package election elects one leader among the replicas of a program, on any store of package
// holdfast.
//
//	e := election.New(locks, "scheduler", nil)
//	err := e.Run(ctx, func(ctx context.Context, term election.Term) error {
//		return schedule(ctx, term.Token) // until ctx ends
//	})
//
// [Election.Run] stands as a candidate, runs the function while this replica leads, and stands
// again after the term was lost. [Election.Leader] and [Election.Observe] return the current leader
// to any process, candidate or not.
//
// # Guarantees
//
// A term is a hold of the lock with the election's name. As long as the store keeps its promises
// (see its package comment), no two terms are valid at the same time: the context of a term ends
// before the store can grant the lock to another candidate. Its Err method reads the clock at each
// call, so it is right at once after the process was paused. Its Done channel, and contexts derived
// from it, may be a moment late then. Tokens rise strictly from term to term.
//
// After a resignation a waiting candidate is elected within 100 ms on stores that notify waiters,
// else within Backoff.Max of its Client. After a crash of the leader, or a cut of its network,
// another candidate is elected when the TTL has run out, 2 s later at most, or at once where the
// store sees the crash (Guarantees().Crash).
//
// # What can go wrong
//
// A leader that is paused between a check of its context and the act that follows acts late, like
// the holder of any lock with a time limit. Pass Term.Token to everything that the leader changes,
// and let it refuse a token smaller than one it has seen.
//
// A function that goes on after its context has ended keeps its own replica from standing again. It
// does not keep another replica from leading.
//
// Of the options in the Client's Config only TTL and Metadata apply.
//
// # When not to use it
//
// If each job must be done once, by any replica, use package once: it needs no leader and no
// standing connection. If each act must be exclusive by itself, take a lock for each.
package election

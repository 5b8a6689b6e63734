// Package ratelimit limits how often something is done, over all replicas of a program. It uses the
// locks of package holdfast, and no counter.
//
//	texts := ratelimit.New(locks, 1, time.Minute) // one a minute, for each key
//	if err := texts.Take(ctx, "sms:"+number); err != nil { … }
//
// Each call that may pass takes a lock with holdfast.Options.Limit N and leaves its share taken for
// the length of the window. Where all shares are taken the error is a [LimitError], which contains
// the time after which to try again. An N of 1 works on every store that keeps names. A greater N
// needs holdfast.Guarantees().Limits: memory, files, Redis, the PostgreSQL table, etcd and S3 have
// it; a quorum and advisory locks do not.
//
// # Guarantees
//
// As the store counts time, no window of that length, wherever it begins, sees more than N calls
// pass for a key, as long as the store forgets nothing (see its package comment). A call passes
// when Take returns nil. That is a sliding window, with no burst at its edges, however slow the
// store and the network are. A call that fails for another reason has not passed; it may use up one
// share.
//
// A share stays taken for longer than the window: for a hundredth of the window and three times
// what it took to acquire the share, or for twice what releases have taken lately if that is more.
// So fewer than N calls pass in a window if calls always wait for every share. If a release takes
// longer than this, its call does not pass, and the share is used up. When the releases of a store
// become slow, this happens to a few calls of each [Limiter], until it has measured how slow they
// are.
//
// A process that is paused between the return of Take and the call makes the call late, and so
// perhaps within a window of N others.
//
// # A counter instead?
//
// A limiter that counts (INCR with an expiry, a token bucket in a script) needs one round trip and
// little memory. This one needs two round trips for a call that passes and one for a call that does
// not, and the store keeps each of the N shares. So it suits a limit that matters, as one reminder
// a day for each customer. It works in a folder, too, and its limit is exact. A counter with fixed
// windows has bursts: it can let 2N calls pass around the end of a window. For thousands of calls a
// second use a counter.
//
// # When not to use it
//
// To limit how many do something at the same time, hold locks instead: this package looks at when
// calls begin, not at how long they take.
package ratelimit

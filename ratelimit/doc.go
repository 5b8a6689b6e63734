// Package ratelimit limits how often something is done, over all replicas of a
// program, with the locks of package holdfast and no counter.
//
//	texts := ratelimit.New(locks, 1, time.Minute) // one a minute, for each key
//	if err := texts.Take(ctx, "sms:"+number); err != nil { … }
//
// Each call that may pass takes one of N places of its key and leaves it taken
// for the length of the window. Where all places are taken the error is a
// [LimitError], which says when to come again.
//
// # Guarantees
//
// As the store counts time, no window of that length, wherever it begins, sees
// more than N calls pass for a key, as long as the store forgets nothing (see
// its package comment). That is a sliding window, with no burst at its edges.
// A call that fails for another reason has not passed; it may use up a place.
//
// # A counter instead?
//
// A limiter that counts (INCR with an expiry, a token bucket in a script) needs
// one round trip, whatever N is, and little memory. This one needs two round
// trips for a call that passes, one for each of the N places for a call that
// does not, and a name in the store for each place that is taken. So it suits
// small N, some ten at most, and a limit that matters: one reminder a day for each
// customer, three calls at once to a fragile partner. It gives no more than that, but
// it does so on every store that keeps names, a folder too, exactly and without
// the burst of a counter with fixed windows, which can let 2N pass around the
// end of one. For thousands of calls a second take a counter.
//
// # When not to use it
//
// To limit how many do something at the same time, hold locks instead: this
// package looks at when calls begin, not at how long they take.
package ratelimit

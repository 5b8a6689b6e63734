// Package once runs each piece of work once, over all replicas of a program, on any store of
// package holdfast that can keep names (Guarantees().Keep) and look them up.
//
//	result, err := once.Every(ctx, locks, "report", 24*time.Hour, nil, writeReport)   // once in each day
//	result, err := once.Do(ctx, locks, "order:42:charge", nil, charge)                // once for each job
//	result, err := once.Within(ctx, locks, "cache", 10*time.Minute, nil, refresh)     // once within 10 minutes
//
// Every replica makes the same call. One of them runs the work. To the others the call reports why
// the work was not run here ([Verdict]): that is a result, not an error.
//
// # How it works
//
// Two names are used. The lock of the job, under the job's own name, is held while the work runs,
// so that two runs of one job never overlap, not even those of different periods. The mark, under a
// name of its own for each piece of work ("report@2026-11-21T00:00:00Z", "order:42:charge/done"),
// shows that the work has been done. It is placed under the lock, and the store keeps it for as
// long as a replica may look for it.
//
// A lock alone cannot do this. If it is released after the work, a replica with a clock that is
// behind runs the work again. If it is kept for a period after the work, a run that began late
// keeps the next period's first replica out: runs drift, and periods are skipped. With a mark for
// each period neither happens.
//
// # Guarantees
//
// Of one piece of work no two runs overlap, and after one has succeeded (has returned nil) none
// begins, as long as
//   - the store forgets nothing (see its package comment),
//   - no two replicas' wall clocks differ by more than Options.Skew when they make their calls, and
//     no clock is set by more than that,
//   - and, for Do, no call is made later than Options.Remember after the end.
//
// # What counts
//
// A run counts if it has succeeded: the work has returned nil, and the lock was held until then. A
// run does not count if it fails, if its lock is lost, if Client.Close or ReleaseAll cuts it short,
// or if its process crashes: the next call runs the work again, within the TTL after a crash at the
// earliest.
//
// With Options.AtMostOnce it is the other way round: the mark is placed before the work begins, and
// the run is not repeated, however it ends. For Do, that holds for Options.Remember from the begin
// of the work.
//
// The command "holdfast once" follows the same rule with the same names. With --every it is
// [Within], with --cron and --slot it is [In]. [Do] and Within share their marks, so each sees the
// runs of the other. The slots of [Every] and [In] have marks of their own. They share only the
// lock of the job with Do and Within, so that runs never overlap.
//
// Whether the work runs at all is up to the callers: a replica must make the call while the period
// lasts, and make it again after a failure. A call made while another replica runs the work returns
// [Busy], which does not mean that the run will succeed. With Options.Wait the call waits, and runs
// the work if the other run fails or crashes.
//
// # What can go wrong
//
// If the lock of a run is lost, its context ends. The run may go on for a moment while another
// begins. Pass holdfast.FromContext(ctx).Token() to what the work changes, if that can refuse a
// token smaller than one it has seen.
//
// After a crash between the end of the work and the mark, the work is repeated. Only work that
// commits its own effects and a note that it was done in one transaction is done exactly once.
//
// Of the options in the Client's Config only TTL and Metadata apply.
//
// # When not to use it
//
// For a limit on how often something happens, use package ratelimit. For keeping two things from
// happening at the same time, a plain lock is enough.
package once

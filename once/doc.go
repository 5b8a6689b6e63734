// Package once runs each piece of work once, over all replicas of a program, on
// any store of package holdfast that can keep names (Guarantees().Keep) and look
// them up.
//
//	result, err := once.Every(ctx, locks, "report", 24*time.Hour, nil, writeReport)   // once in each day
//	result, err := once.Do(ctx, locks, "order:42:charge", nil, charge)                // once for each job
//
// Every replica makes the same call. One of them runs the work; the others are
// told why they did not ([Verdict]): that is a result, not an error.
//
// # How it works
//
// Two names are used. The lock of the job, under its own name, is held while the
// work runs, so that two runs of one job never overlap, not even those of
// different periods. The mark, under a name of its own for each piece of work
// ("report@2026-11-21T00:00:00Z", "order:42:charge/done"), says that it has been
// done; it is placed under the lock, and kept by the store for as long as
// anybody may ask.
//
// A lock alone cannot do this. If it is let go after the work, a replica whose
// clock is behind runs the work again. If it is kept for a period after the
// work, a run that began late keeps the next period's first replica out: runs
// drift, and periods are skipped. A mark for each period does neither.
//
// # Guarantees
//
// Of one piece of work no two runs overlap, and after one has succeeded (has
// returned nil) none begins, as long as
//   - the store forgets nothing (see its package comment),
//   - no two replicas' wall clocks differ by more than Options.Skew when they
//     ask, nor does a clock that is set go further than that,
//   - and, for Do, nobody asks later than Options.Remember after the end.
//
// A run that fails, whose lock is lost, or whose process crashes does not count:
// the next replica that asks runs the work again, within the TTL after a crash at
// the earliest. With Options.AtMostOnce it is the other way round: the mark is
// placed before the work begins, and whatever becomes of the run, it is not
// repeated.
//
// Whether the work runs at all is up to the callers: somebody has to ask while
// the period lasts, and to ask again after a failure. One who asks while another
// runs the work gets [Busy] and should not conclude that it will succeed; with
// Options.Wait he waits, and takes over if the other fails or crashes.
//
// # What can go wrong
//
// A run whose lock is lost (its context ends then) may go on for a moment while
// another begins. Hand holdfast.FromContext(ctx).Token() to what the work
// changes, where that can refuse a smaller token than it has seen.
//
// A crash after the work and before the mark repeats the work. Only work whose
// own effects are committed together with a note that it was done, in one
// transaction, is done exactly once.
//
// The options of the Client's Config count as well: a Client for this package
// must not have MinHold, MaxHold, NoRenew or Reentrant among them.
//
// # When not to use it
//
// For a limit on how often something happens, use package ratelimit. For
// keeping two things from happening at the same time, a plain lock is enough.
package once

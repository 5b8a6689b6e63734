// Package gocronlock lets the schedulers of several replicas share their jobs, for
// github.com/go-co-op/gocron/v2, on any store of package holdfast.
//
//	gocron.WithDistributedElector(gocronlock.NewElector(e))                  // for a scheduler: only the leader runs jobs
//	gocron.WithDistributedJobLocker(gocronlock.NewLocker(locks, time.Hour, nil)) // for a job: once in each hour
//
// # Which of the two
//
// With [NewLocker] each tick of a job runs once, on whichever replica comes
// first. It is made for one job, and told the interval of its ticks: what makes
// a run "the same" on all replicas is the tick that is nearest by their clocks,
// and not who is quicker. So a job that is done before another replica's clock
// shows the tick is not run again, as it is with a lock that is let go after the
// run, and no tick is lost, as happens with one that is kept for a while. The job
// should be scheduled so that all replicas mean the same moments: CronJob,
// DailyJob and the like, or DurationJob with WithStartAt at a multiple of the
// duration.
//
// With [NewElector] one replica runs all jobs, as long as it leads.
//
// # What can go wrong
//
// Gocron tells neither of them whether a job has failed: a run that has ended
// counts as done. A run whose process crashes is not repeated before the next
// tick, since nobody asks again.
//
// Nor can a job be told that it has lost its lock, or its leadership, while it
// runs. Where that matters do not use this package, but call once.Every or
// election.Election.Leading inside of the job, on a scheduler without a locker.
package gocronlock

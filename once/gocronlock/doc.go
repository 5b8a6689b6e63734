// Package gocronlock lets the schedulers of several replicas share their jobs, for
// github.com/go-co-op/gocron/v2, on any store of package holdfast.
//
//	gocron.WithDistributedJobLocker(gocronlock.NewLocker(locks, time.Hour, nil)) // for a job: once in each hour
//
// With [NewLocker] each tick of a job runs once, on the replica that comes first. A locker is made
// for one job, with the interval of its ticks. Runs on two replicas are "the same" if they belong
// to the same tick, the one that is nearest by the replica's clock; it does not matter which
// replica is quicker. So a job that is done before another replica's clock shows the tick is not
// run again, as it would be with a lock that is released after the run. No tick is lost, as would
// happen with a lock that is kept for a while. The job should be scheduled so that all replicas
// mean the same moments: DurationJob with WithStartAt at a multiple of the duration, or CronJob,
// DailyJob and the like with [NewSlotLocker].
//
// To have one replica run all jobs, let each job return at once unless election.Election.Leading
// reports that this replica leads.
//
// # What can go wrong
//
// Gocron does not report to a locker whether a job has failed: a run that has ended counts as done.
// If the process of a run crashes, the run is not repeated before the next tick, since no replica
// tries again.
//
// A job cannot be notified that it has lost its lock while it runs. Where that matters do not use
// this package. Call once.Every inside the job, on a scheduler without a locker.
//
// Shut the scheduler down before the Client is closed: Client.Close would wait for a running job
// until the deadline of its lock, and then let other replicas run it.
package gocronlock

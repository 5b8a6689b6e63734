// Package cronlock lets the schedulers of several replicas share their jobs, for
// github.com/robfig/cron/v3, on any store of package holdfast.
//
//	schedule, err := cron.ParseStandard("0 3 * * *")
//	c.Schedule(schedule, cronlock.Job(locks, "nightly", schedule, nil, work))    // work func(context.Context) error
//
//	chain := cron.NewChain(cronlock.Once(locks, "nightly", schedule, nil))        // for a cron.Job that is there already
//	c.Schedule(schedule, chain.Then(job))
//
// Each activation of the schedule runs once over all replicas; see package once
// for what is guaranteed. What makes a run "the same" is the moment of the
// activation: the latest one of the schedule that is past by the replica's own
// clock. All replicas must have the same schedule, in the same time zone.
//
// For "@every 5m", whose activations are counted from the start of each
// process, the periods of that length since midnight UTC take their place.
package cronlock

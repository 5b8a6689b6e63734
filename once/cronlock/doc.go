// Package cronlock lets the schedulers of several replicas share their jobs, for
// github.com/robfig/cron/v3, on any store of package holdfast.
//
//	schedule, err := cron.ParseStandard("0 3 * * *")
//	// work is a func(context.Context) error
//	c.Schedule(schedule, cronlock.Job(locks, "nightly", schedule, nil, work))
//
// Each activation of the schedule runs once over all replicas. See package once for what is
// guaranteed. Runs on two replicas are "the same" if they belong to the same moment of activation:
// the latest one of the schedule that is past by the replica's own clock. All replicas must have
// the same schedule, in the same time zone. A zone of cron.WithLocation is not seen here: name it
// in the schedule ("TZ=Asia/Tokyo 0 3 * * *").
//
// On the night on which clocks are set back, cron starts a job between two and three twice, and the
// job runs the first time (see [Slot]). On the night on which they are set forward, cron skips such
// a job: choose another hour, or UTC.
//
// At shutdown end Options.Context, wait for cron.Stop, and then close the Client: Client.Close
// would wait for running jobs until the deadlines of their locks, and then let other replicas run
// them.
//
// The activations of "@every 5m" are counted from the start of each process. For such a schedule
// the periods of that length since midnight UTC take their place.
package cronlock

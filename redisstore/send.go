package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// sendBatch sends a batch in one round trip. Scripts that a server does not know are sent again, in
// full.
func (s *engine) sendBatch(values context.Context, deadline time.Time, batch []*call) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(values), deadline)
	defer cancel()
	all := groupCalls(batch)
	s.sendKnown(ctx, all)
	if s.options.RestartGuard > 0 {
		s.sendGuarded(ctx, all)
	}
	for _, r := range all {
		r.distribute()
	}
}

// sendKnown makes one round trip, and another one for the scripts that a server does not know.
func (s *engine) sendKnown(ctx context.Context, runs []*scriptRun) {
	for inFull := false; len(runs) > 0; inFull = true {
		for _, r := range runs {
			s.prepareCommand(r, inFull)
		}
		switch {
		case s.options.MinReplicas > 0:
			s.sendAndWait(ctx, runs)
		case len(runs) == 1 && !(runs[0].script == renewScript && s.isPoolUsedUp(ctx, runs[0].calls[0].lock)):
			runs[0].err = s.client.Process(ctx, noRetry{runs[0].cmd})
		default:
			pipe := s.client.Pipeline()
			for _, r := range runs {
				_ = pipe.Process(ctx, noRetry{r.cmd}) // A pipeline only records it here.
			}
			_, err := pipe.Exec(ctx)
			for _, r := range runs {
				r.err = err
			}
		}
		if inFull {
			return
		}
		var unknown []*scriptRun
		for _, r := range runs {
			if err := r.cmd.Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
				unknown = append(unknown, r)
			}
		}
		runs = unknown
	}
}

// isPoolUsedUp reports whether a command for a lock would wait for other work to end. A pipeline
// need not: the client library has connections for pipelines alone.
func (s *engine) isPoolUsedUp(ctx context.Context, lock string) bool {
	client, ok := s.client.(*redis.Client)
	if cluster, isCluster := s.client.(*redis.ClusterClient); isCluster {
		var err error
		client, err = cluster.MasterForKey(ctx, lock)
		ok = err == nil
	}
	if !ok {
		return false
	}
	size, pool := client.Options().PoolSize, client.PoolStats()
	if most := client.Options().MaxActiveConns; most > 0 {
		size = min(size, most)
	}
	return pool.IdleConns == 0 && int(pool.TotalConns) >= size
}

// sendGuarded sends acquisitions again if their server does not know whether it has to abstain,
// with the setting that decides it: see lua/guard.lua. None of them has changed anything.
func (s *engine) sendGuarded(ctx context.Context, runs []*scriptRun) {
	var open []*scriptRun
	for _, r := range runs {
		answers, _ := r.cmd.Val().([]any)
		if slices.ContainsFunc(answers, func(answer any) bool {
			words, _ := answer.([]any)
			return len(words) == 3 && words[0] == "abstains" && words[2] == int64(1)
		}) {
			open = append(open, r)
		}
	}
	if len(open) == 0 {
		return
	}
	setting, err := s.client.ConfigGet(ctx, backlogTTL).Result()
	if reply := redis.Error(nil); err != nil && !errors.As(err, &reply) {
		return // It is not known, and a later request may read it.
	}
	kept := "no"
	ttl, err := strconv.ParseInt(setting[backlogTTL], 10, 64)
	if err == nil && (ttl == 0 || ttl >= int64(math.Ceil(s.options.RestartGuard.Seconds()))) {
		kept = "yes"
	}
	for _, r := range open {
		r.backlogKept = kept
	}
	s.sendKnown(ctx, open)
}

// backlogTTL is the setting for how many seconds a master without replicas keeps the name of a
// former history; 0 is for ever.
const backlogTTL = "repl-backlog-ttl"

// sendAndWait sends runs with WAIT behind them in the same pipeline. A grant that too few replicas
// have confirmed in time is released, and not reported.
func (s *engine) sendAndWait(ctx context.Context, runs []*scriptRun) {
	o := &s.options
	pipe := s.client.Pipeline()
	for _, r := range runs {
		_ = pipe.Process(ctx, noRetry{r.cmd}) // A pipeline only records it here.
	}
	wait := redis.NewIntCmd(ctx, "wait", o.MinReplicas, o.ReplicaTimeout.Milliseconds())
	_ = pipe.Process(ctx, wait)
	_, failed := pipe.Exec(ctx)
	for _, r := range runs {
		r.err, r.unconfirmed = failed, nil // It may be the second sending.
	}
	confirmed, err := wait.Result()
	if err == nil && int(confirmed) >= o.MinReplicas {
		return
	}
	unconfirmed := fmt.Errorf("%d replicas have confirmed in time, want %d (MinReplicas)", confirmed, o.MinReplicas)
	if err != nil {
		unconfirmed = fmt.Errorf("it is not known how many replicas have confirmed, want %d (MinReplicas): %v", o.MinReplicas, err)
	}
	undone := s.releaseAcquired(ctx, runs)
	refused := redis.Error(nil) // the reply to WAIT, as for a user that may not use it
	_ = errors.As(err, &refused)
	for _, r := range runs {
		r.unconfirmed = unconfirmed
		switch {
		case !undone || r.script != acquireScript:
		case refused != nil:
			r.unconfirmed = refused
		default:
			// Until it was undone the lock looked held. A caller that waits leaves it free for most
			// of the time.
			r.unconfirmed = &driver.RetryError{Err: unconfirmed, After: 4 * o.ReplicaTimeout}
		}
	}
}

// releaseAcquired releases the locks that were acquired, and reports whether all of them are free.
func (s *engine) releaseAcquired(ctx context.Context, runs []*scriptRun) bool {
	var held []*call
	for _, r := range runs {
		if r.script != acquireScript || r.cmd.Err() != nil {
			continue
		}
		for i, c := range r.calls {
			reply, _ := r.replyTo(i)
			if grantOf(reply).Granted {
				held = append(held, &call{script: releaseScript, tag: c.tag, lock: c.lock, owner: c.owner})
			}
		}
	}
	for _, part := range groupCalls(held) {
		s.prepareCommand(part, true)
		if err := s.client.Process(ctx, noRetry{part.cmd}); err != nil {
			return false
		}
		for i := range part.calls {
			reply, _ := part.replyTo(i)
			if _, ended := reply.(int64); !ended {
				return false // {'failed', why}
			}
		}
	}
	return true
}

// mustSurviveFailover reports whether a call has made a change that must survive a failover.
func mustSurviveFailover(c *call) bool {
	if c.script == renewScript || c.script == releaseScript && c.ms > 0 {
		return c.reply == int64(1)
	}
	return (c.script == acquireScript || c.script == claimScript) && grantOf(c.reply).Granted
}

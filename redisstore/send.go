package redisstore

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// sendBatch sends a batch in one round trip. Scripts that a server does not know are sent again, in
// full.
func (s *Store) sendBatch(values context.Context, deadline time.Time, batch []*call) {
	ctx := &deadlineContext{values, deadline, s.deadlines.after(deadline)}
	all := groupCalls(batch)
	s.sendKnown(ctx, all)
	if s.options.RestartGuard > 0 {
		s.sendGuarded(ctx, all)
	}
	if s.cluster {
		all = s.sendApart(ctx, all)
	}
	for _, r := range all {
		r.distribute()
	}
}

// sendKnown makes one round trip, and another one for the scripts that a server does not know.
func (s *Store) sendKnown(ctx context.Context, runs []*scriptRun) {
	for inFull := false; len(runs) > 0; inFull = true {
		for _, r := range runs {
			s.prepareCommand(ctx, r, inFull)
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
func (s *Store) isPoolUsedUp(ctx context.Context, lock string) bool {
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
func (s *Store) sendGuarded(ctx context.Context, runs []*scriptRun) {
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

// sendApart sends the calls that a node of a cluster has refused because it is giving the slot away
// or taking it over. During that time a script with several keys runs only if one node has all of
// them, and one with a single key runs. sendApart returns the runs that have the replies. A free
// lock cannot be granted meanwhile, since its token takes more keys, and nothing can be done with
// its queue. A held lock can be renewed, released and described.
func (s *Store) sendApart(ctx context.Context, runs []*scriptRun) []*scriptRun {
	var all, apart []*scriptRun
	for _, r := range runs {
		err := r.cmd.Err()
		if err == nil || !redis.HasErrorPrefix(err, "TRYAGAIN") {
			all = append(all, r)
			continue
		}
		for _, c := range r.calls {
			one := &scriptRun{script: r.script, tag: r.tag, calls: []*call{c}, alone: true, originalErr: err}
			if r.script == acquireScript || r.script == claimScript {
				one.script = heldScript
			}
			apart = append(apart, one)
		}
	}
	if len(apart) > 0 {
		s.sendKnown(ctx, apart)
	}
	return append(all, apart...)
}

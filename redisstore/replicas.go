package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// maxRedirects is how often a request is sent anew because a slot of a cluster has moved.
const maxRedirects = 4

// A runTarget is the server that a run of a script is sent to.
type runTarget struct {
	client redis.Cmdable
	asking bool // the node is still taking over the slot
}

// sendAndWait makes one round trip to each master concerned, which lasts until enough of its
// replicas have the changes, and follows the redirections by nodes of a cluster.
func (s *Store) sendAndWait(ctx context.Context, runs []*scriptRun) {
	for range maxRedirects {
		byPlace := map[runTarget][]*scriptRun{}
		for _, r := range runs {
			at, err := s.targetOf(ctx, r)
			if err != nil {
				r.cmd.SetErr(err)
				continue
			}
			r.cmd.SetErr(nil)
			byPlace[at] = append(byPlace[at], r)
		}
		for at, runs := range byPlace {
			s.sendAndConfirm(ctx, at, runs)
		}
		if !s.cluster {
			return
		}
		runs = slices.DeleteFunc(slices.Clone(runs), func(r *scriptRun) bool {
			err := r.cmd.Err()
			return err == nil || !redis.HasErrorPrefix(err, "MOVED") && !redis.HasErrorPrefix(err, "ASK")
		})
	}
}

// targetOf returns the target of a run of a script: the node that the last reply names, or else the
// server of its locks.
func (s *Store) targetOf(ctx context.Context, r *scriptRun) (runTarget, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return runTarget{client: s.client}, nil
	}
	last := r.cmd.Err()
	addr, moved := redis.IsMovedError(last)
	if moved {
		cluster.ReloadState(ctx)
	}
	asked, asking := redis.IsAskError(last)
	if !moved && !asking {
		master, err := cluster.MasterForKey(ctx, r.calls[0].lock)
		return runTarget{client: master}, err
	}
	if asking {
		addr = asked
	}
	var mu sync.Mutex
	var node redis.Cmdable
	err := cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if master.Options().Addr == addr {
			node = master
		}
		return nil
	})
	if err == nil && node == nil {
		err = last // The list of nodes is being read anew.
	}
	return runTarget{node, asking}, err
}

func (s *Store) sendAndConfirm(ctx context.Context, at runTarget, runs []*scriptRun) {
	o := &s.options
	pipe := at.client.Pipeline()
	for _, r := range runs {
		if at.asking {
			_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
		}
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
	undone := s.releaseAcquired(ctx, at.client, runs)
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
func (s *Store) releaseAcquired(ctx context.Context, master redis.Cmdable, runs []*scriptRun) bool {
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
		s.prepareCommand(ctx, part, true)
		pipe := master.Pipeline()
		_ = pipe.Process(ctx, noRetry{part.cmd})
		if _, err := pipe.Exec(ctx); err != nil {
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

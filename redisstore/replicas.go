package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// An unconfirmedError means that too few replicas have confirmed a change.
type unconfirmedError struct {
	confirmed, wanted int
	cause             error // why the number is not known, or nil
}

func (e *unconfirmedError) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("it is not known how many replicas have confirmed, want %d (MinReplicas): %v", e.wanted, e.cause)
	}
	return fmt.Sprintf("%d replicas have confirmed in time, want %d (MinReplicas)", e.confirmed, e.wanted)
}

// maxRedirects is how often a request is sent anew because a slot of a cluster has moved.
const maxRedirects = 4

// A batchTarget is the server that a script batch is sent to.
type batchTarget struct {
	client redis.Cmdable
	asking bool // the node is still taking over the slot
}

// sendAndWait makes one round trip to each master concerned, which lasts until enough of its
// replicas have the changes.
func (s *Store) sendAndWait(ctx context.Context, runs []*scriptBatch) {
	for range maxRedirects {
		byPlace := map[batchTarget][]*scriptBatch{}
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
		if runs = redirected(runs); len(runs) == 0 || !s.cluster {
			return
		}
	}
}

// redirected returns the script batches that a node of a cluster has redirected to another one.
func redirected(runs []*scriptBatch) (moved []*scriptBatch) {
	for _, r := range runs {
		err := r.cmd.Err()
		if err != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
			moved = append(moved, r)
		}
	}
	return moved
}

// targetOf returns the target of a script batch: the node that the last reply names, or else the
// server of its locks.
func (s *Store) targetOf(ctx context.Context, r *scriptBatch) (batchTarget, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return batchTarget{client: s.client}, nil
	}
	last := r.cmd.Err()
	addr, moved := redis.IsMovedError(last)
	if moved {
		cluster.ReloadState(ctx)
	}
	asked, asking := redis.IsAskError(last)
	if !moved && !asking {
		master, err := cluster.MasterForKey(ctx, r.calls[0].lock)
		return batchTarget{client: master}, err
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
	return batchTarget{node, asking}, err
}

func (s *Store) sendAndConfirm(ctx context.Context, at batchTarget, runs []*scriptBatch) {
	o := &s.options
	pipe := at.client.Pipeline()
	for _, r := range runs {
		if at.asking {
			_ = pipe.Process(ctx, redis.NewCmd(ctx, "asking"))
		}
		_ = pipe.Process(ctx, r.cmd) // A pipeline only records it here.
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
	unconfirmed := &unconfirmedError{confirmed: int(confirmed), wanted: o.MinReplicas, cause: err}
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
func (s *Store) releaseAcquired(ctx context.Context, master redis.Cmdable, runs []*scriptBatch) bool {
	var held []*call
	for _, r := range runs {
		if r.script != acquireScript || r.cmd.Err() != nil || !r.hasReplies() {
			continue
		}
		for i, c := range r.calls {
			if _, granted := r.replyTo(i).(int64); granted {
				held = append(held, &call{script: releaseScript, tag: c.tag, lock: c.lock, owner: c.owner})
			}
		}
	}
	for _, part := range groupCalls(held) {
		s.prepareCommand(ctx, part, true)
		pipe := master.Pipeline()
		_ = pipe.Process(ctx, part.cmd)
		if _, err := pipe.Exec(ctx); err != nil || !part.hasReplies() {
			return false
		}
		for i := range part.calls {
			if _, ended := part.replyTo(i).(int64); !ended {
				return false // {'failed', why}
			}
		}
	}
	return true
}

// mustSurviveFailover reports whether a call has made a change that must survive a failover.
func mustSurviveFailover(c *call) bool {
	_, granted := c.reply.(int64)
	return c.script == acquireScript && granted || c.script == renewScript && c.reply == int64(1)
}

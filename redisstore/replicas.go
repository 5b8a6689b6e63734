package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// An unconfirmedError says that too few replicas have confirmed a change.
type unconfirmedError struct {
	confirmed, wanted int
	cause             error // why it is not known how many, or nil
	undone            bool
}

func (e *unconfirmedError) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("it is not known how many replicas have confirmed, want %d (MinReplicas): %v", e.wanted, e.cause)
	}
	return fmt.Sprintf("%d replicas have confirmed in time, want %d (MinReplicas)", e.confirmed, e.wanted)
}

func (e *unconfirmedError) Unwrap() []error {
	if e.undone {
		return []error{driver.ErrNotApplied}
	}
	return nil
}

// sendAndWait makes one round trip to each master concerned, which lasts until
// enough of its replicas have what was changed.
func (s *Store) sendAndWait(ctx context.Context, runs []*run) {
	byMaster := map[redis.Cmdable][]*run{}
	for _, r := range runs {
		master, err := s.master(ctx, r.calls[0].lock)
		if err != nil {
			r.cmd.SetErr(err)
			continue
		}
		byMaster[master] = append(byMaster[master], r)
	}
	for master, runs := range byMaster {
		s.confirm(ctx, master, runs)
	}
}

// master returns a client whose pipelines go to the server of the lock.
func (s *Store) master(ctx context.Context, lock string) (redis.Cmdable, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return s.client, nil
	}
	return cluster.MasterForKey(ctx, lock)
}

func (s *Store) confirm(ctx context.Context, master redis.Cmdable, runs []*run) {
	o := &s.options
	pipe := master.Pipeline()
	for _, r := range runs {
		_ = pipe.Process(ctx, r.cmd) // A pipeline only notes it here.
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
	undone := s.undo(ctx, master, runs)
	for _, r := range runs {
		if redis.HasErrorPrefix(r.cmd.Err(), "MOVED") {
			s.client.(*redis.ClusterClient).ReloadState(ctx)
		}
		r.unconfirmed = &unconfirmedError{
			confirmed: int(confirmed), wanted: o.MinReplicas, cause: err,
			undone: undone && r.script == acquireScript,
		}
	}
}

// undo releases what was acquired, and reports whether all of it is free.
func (s *Store) undo(ctx context.Context, master redis.Cmdable, runs []*run) bool {
	var held []*call
	for _, r := range runs {
		if r.script != acquireScript || r.cmd.Err() != nil || !r.answered() {
			continue
		}
		for i, c := range r.calls {
			if _, granted := r.answer(i).(int64); granted {
				held = append(held, &call{script: releaseScript, tag: c.tag, lock: c.lock, owner: c.owner})
			}
		}
	}
	for _, part := range group(held) {
		s.prepare(ctx, part, true)
		pipe := master.Pipeline()
		_ = pipe.Process(ctx, part.cmd)
		if _, err := pipe.Exec(ctx); err != nil {
			return false
		}
	}
	return true
}

// changes reports whether a call has changed what must survive a failover.
func changes(c *call) bool {
	_, granted := c.reply.(int64)
	return c.script == acquireScript && granted || c.script == renewScript && c.reply == int64(1)
}

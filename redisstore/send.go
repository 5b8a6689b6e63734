package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// pipeline is the exec of a lane: it sends a batch in one round trip. Scripts
// that a server does not know are sent again, in full.
func (s *Store) pipeline(ctx context.Context, batch []*call) {
	all := group(batch)
	s.send(ctx, all, false)
	var unknown []*run
	for _, r := range all {
		if err := r.cmd.Err(); err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			unknown = append(unknown, r)
		}
	}
	if len(unknown) > 0 {
		s.send(ctx, unknown, true)
	}
	for _, r := range all {
		r.deliver()
	}
}

// send makes one round trip.
func (s *Store) send(ctx context.Context, runs []*run, inFull bool) {
	for _, r := range runs {
		s.prepare(ctx, r, inFull)
	}
	if s.options.MinReplicas > 0 {
		s.sendAndWait(ctx, runs)
		return
	}
	if len(runs) == 1 {
		runs[0].err = s.client.Process(ctx, runs[0].cmd)
		return
	}
	pipe := s.client.Pipeline()
	for _, r := range runs {
		_ = pipe.Process(ctx, r.cmd) // A pipeline only notes it here.
	}
	_, err := pipe.Exec(ctx)
	for _, r := range runs {
		r.err = err
	}
}

// newCall returns a call that runs a script on a lock.
func (s *Store) newCall(script *script, name string) *call {
	lock := s.lockKey(name)
	return &call{script: script, tag: s.tag(lock), lock: lock}
}

// ownerCall is a call by the owner of a lock.
func (s *Store) ownerCall(script *script, name, owner string, ms int64) *call {
	both := s.prefix + name + owner + "\n" // in one piece of memory
	size := len(s.prefix) + len(name)
	lock := both[:size]
	return &call{script: script, tag: s.tag(lock), lock: lock, owner: both[size:], ms: ms}
}

// do makes a call and returns its answer. A patient caller stays until the
// deadline of ctx.
func (s *Store) do(ctx context.Context, patient bool, c *call) (any, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	l := s.lane(c.lock)
	if patient && s.bears(ctx) {
		if run, alone := l.lead(); alone {
			l.carryAlone(ctx, run, c)
			return s.read(c, c.err)
		}
	}
	l.put(c)
	return s.read(c, l.wait(ctx, c))
}

// bears reports whether a caller with this context can carry a call himself: if
// the request ends at his deadline, and he is in no hurry. A request that is
// given up sooner stays in its lane, so that the release that follows does not
// overtake it on another connection.
func (s *Store) bears(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return s.obeys && (!limited || time.Until(deadline) > noHurry)
}

// answer waits for a call, which has been put into its lane.
func (s *Store) answer(ctx context.Context, c *call) (any, error) {
	return s.read(c, c.lane.wait(ctx, c))
}

// read returns the answer to a call that has ended so.
func (s *Store) read(c *call, err error) (any, error) {
	if err != nil {
		return nil, s.fault(err)
	}
	if words, ok := c.reply.([]any); ok && len(words) == 1 {
		switch words[0] {
		case "corrupt":
			return nil, fmt.Errorf("%w: the key %q is not of the type string, as a lock is: see TYPE and DEL", driver.ErrCorrupt, c.lock)
		case "exhausted":
			return nil, fmt.Errorf("%w: there is no token as great as the request needs: see the keys %q and %q",
				driver.ErrInvalid, s.counterKey(c.tag), s.aheadKey(c.tag))
		}
	}
	return c.reply, nil
}

// usable reports why nothing can be asked of the store.
func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if s.misuse != nil {
		return s.misuse
	}
	if err := ctx.Err(); err != nil {
		return notApplied{err}
	}
	return nil
}

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// A lane carries calls to the server one batch after the other. While a batch
// is on its way the next one gathers, so that the more calls there are the
// fewer round trips each costs, and a call that comes alone is sent at once. A
// release can never overtake the acquire that it undoes: it is in a later batch.
//
// A lane has a goroutine only while it has calls.
type lane struct {
	exec func(ctx context.Context, batch []*call) // carries out a batch

	mu      sync.Mutex
	waiting []*call
	run     uint64 // the number of the runner, 0 if there is none
	runs    uint64 // how many runners there were
}

// A call is what is to be done to one lock.
type call struct {
	script *script
	tag    string // of the keys' hash slot, in a cluster
	lock   string
	record string
	args   []any

	done  chan struct{} // closed when reply and err are set
	reply any
	err   error
}

const (
	// batchMax is how many calls go into one batch.
	batchMax = 1024

	// requestBound is for how long a lane waits for a batch. Then it leaves it
	// to itself, so that one dead connection does not hold up everybody.
	requestBound = 3 * time.Second
)

// errWithdrawn is the end of a call whose context ended before it was sent.
var errWithdrawn = errors.New("given up before it was sent")

// put adds calls to the lane, to be sent in this order.
func (l *lane) put(calls ...*call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, calls...)
	if l.run == 0 {
		l.begin()
	}
}

// begin starts a runner in the place of any before. The caller holds l.mu.
func (l *lane) begin() {
	l.runs++
	l.run = l.runs
	go l.carry(l.run)
}

// carry sends batches until there are no calls, or until it has been replaced
// because a batch took too long.
func (l *lane) carry(run uint64) {
	replace := time.AfterFunc(time.Hour, func() { l.replace(run) })
	defer replace.Stop()
	for {
		batch := l.take(run)
		if batch == nil {
			return
		}
		replace.Reset(requestBound)
		ctx, cancel := context.WithTimeout(context.Background(), requestBound)
		l.exec(ctx, batch)
		cancel()
		for _, c := range batch {
			close(c.done)
		}
	}
}

// take returns the next batch, nil if the runner is to end.
func (l *lane) take(run uint64) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run != run {
		return nil
	}
	if len(l.waiting) == 0 {
		l.run = 0
		return nil
	}
	batch := l.waiting
	if len(batch) > batchMax {
		batch, l.waiting = batch[:batchMax:batchMax], batch[batchMax:]
	} else {
		l.waiting = nil
	}
	return batch
}

// replace lets another runner go on while this one waits for its batch.
func (l *lane) replace(run uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run == run {
		l.begin()
	}
}

// withdraw takes back a call that has not been sent, and reports whether it
// could.
func (l *lane) withdraw(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, waiting := range l.waiting {
		if waiting == c {
			l.waiting = append(l.waiting[:i:i], l.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// wait returns when the call is done or ctx ends; a call that has been sent
// goes on then.
func (l *lane) wait(ctx context.Context, c *call) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		if l.withdraw(c) {
			return notApplied{errors.Join(ctx.Err(), errWithdrawn)}
		}
		return ctx.Err()
	}
}

// pipeline is the exec of a lane: it sends a batch in one round trip. Scripts
// that a server does not know are sent again, in full.
func (s *Store) pipeline(ctx context.Context, batch []*call) {
	all := group(batch)
	s.send(ctx, all, false)
	var unknown []*run
	for _, r := range all {
		if redis.HasErrorPrefix(r.cmd.Err(), "NOSCRIPT") {
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
func (s *Store) newCall(script *script, lock string, args ...any) *call {
	tag := s.tag(lock)
	return &call{
		script: script, tag: tag, lock: lock, record: recordKey(tag, lock),
		args: args, done: make(chan struct{}),
	}
}

// do runs a script on a lock and returns its answer.
func (s *Store) do(ctx context.Context, script *script, lock string, args ...any) (any, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	c := s.newCall(script, lock, args...)
	s.lane(lock).put(c)
	return s.answer(ctx, c)
}

// answer waits for a call, which has been put into its lane.
func (s *Store) answer(ctx context.Context, c *call) (any, error) {
	if err := s.lane(c.lock).wait(ctx, c); err != nil {
		return nil, s.fault(err)
	}
	if words, ok := c.reply.([]any); ok && len(words) == 1 {
		switch words[0] {
		case "corrupt":
			return nil, fmt.Errorf("%w: the key %q is not of the type string, as a lock is: see TYPE and DEL", driver.ErrCorrupt, c.lock)
		case "exhausted":
			return nil, fmt.Errorf("%w: there is no greater token than the last one: see the key %q", driver.ErrUnsupported, s.counterKey(c.tag))
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

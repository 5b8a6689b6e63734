package redisstore

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A lane carries calls to the server one batch after the other. While a batch
// is on its way the next one gathers, so that the more calls there are the
// fewer round trips each costs. A release can never overtake the acquire that it
// undoes: it is in a later batch.
//
// A call that comes alone is carried by its caller, if he can (see bears): to pass
// it on to a goroutine and back takes as long as the server. Else a lane has a
// goroutine, while it has calls.
type lane struct {
	exec func(ctx context.Context, batch []*call) // carries out a batch

	mu      sync.Mutex
	waiting []*call
	run     uint64    // the number of the runner, 0 if there is none
	runs    uint64    // how many runners there were
	since   time.Time // when the runner took its batch
	watched bool      // a timer is set for the runner

	alarms alarms
}

// A call is what is to be done to one lock.
type call struct {
	script *script
	tag    string // of the keys' hash slot, in a cluster
	lock   string
	lane   *lane // that it was put into

	// The arguments: its own, and those that the calls of a batch may share. A script
	// has the first of each, both, or none.
	owner  string // with a line break
	floor  int64
	ms     int64  // TTL, or time to keep the name
	public string // what the value is to say to everybody

	// How it ends, in a lane: when reply and err are set.
	done  chan struct{}   // closed then, if somebody waits
	then  func()          // called instead, if it is not nil
	ctx   context.Context // not to be sent after its end, if it is not nil
	reply any
	err   error
}

// end tells whoever waits for a call.
func (c *call) end() {
	if c.then != nil {
		c.then()
		return
	}
	close(c.done)
}

const (
	// batchMax is how many calls go into one batch.
	batchMax = 1024

	// requestBound is for how long a lane waits for a batch. Then it leaves it
	// to itself, so that one dead connection does not hold up everybody.
	requestBound = 3 * time.Second

	// noHurry is how long a caller must be ready to wait who carries a call
	// himself, or shares an alarm.
	noHurry = 900 * time.Millisecond
)

// errWithdrawn is the end of a call whose context ended before it was sent.
var errWithdrawn = errors.New("given up before it was sent")

// put adds calls to the lane, to be sent in this order.
func (l *lane) put(calls ...*call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range calls {
		c.lane = l
		if c.then == nil {
			c.done = make(chan struct{})
		}
	}
	l.waiting = append(l.waiting, calls...)
	if l.run == 0 {
		l.begin()
	} else {
		l.watch()
	}
}

// lead makes the caller the runner, if there is none, and returns its number.
func (l *lane) lead() (run uint64, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run != 0 {
		return 0, false
	}
	return l.next(), true
}

// next makes a new runner's number that of the lane. The caller holds l.mu.
func (l *lane) next() uint64 {
	l.runs++
	l.run = l.runs
	l.since = time.Now()
	return l.run
}

// begin starts a runner in the place of any before. The caller holds l.mu.
func (l *lane) begin() { go l.carry(l.next()) }

// watch has the runner replaced if its batch takes too long. Only those who
// wait behind it need that. The caller holds l.mu.
func (l *lane) watch() {
	if !l.watched {
		l.watched = true
		time.AfterFunc(requestBound-time.Since(l.since), l.look)
	}
}

// look lets another runner go on if this one still waits for its batch.
func (l *lane) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = false
	switch {
	case len(l.waiting) == 0:
	case time.Since(l.since) < requestBound:
		l.watch()
	default:
		l.begin()
	}
}

// limit returns a context with the values of another one, for a batch that is to
// end at the deadline.
func (l *lane) limit(values context.Context, deadline time.Time) context.Context {
	return &limited{values, deadline, l.alarms.at(deadline)}
}

// carryAlone carries one call, as the runner, and starts another runner if more
// calls have come meanwhile.
func (l *lane) carryAlone(ctx context.Context, run uint64, c *call) {
	deadline := time.Now().Add(requestBound)
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(deadline) {
		deadline = sooner
	}
	l.exec(l.limit(ctx, deadline), []*call{c})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.run != run: // It took too long, and has been replaced.
	case len(l.waiting) > 0:
		l.begin()
	default:
		l.run = 0
	}
}

// carry sends batches until there are no calls, or until it has been replaced
// because a batch took too long.
func (l *lane) carry(run uint64) {
	for first := true; ; first = false {
		// Those whom the last batch has woken ask for more at once: to let them
		// run first makes fewer and larger batches, for servers and clients.
		if !first {
			runtime.Gosched()
		}
		batch := l.take(run)
		if batch == nil {
			return
		}
		if batch = timely(batch); len(batch) == 0 {
			continue
		}
		l.exec(l.limit(context.Background(), time.Now().Add(requestBound)), batch)
		for _, c := range batch {
			c.end()
		}
	}
}

// timely returns the calls of a batch whose outcome somebody still waits for, and
// ends the others.
func timely(batch []*call) []*call {
	return slices.DeleteFunc(batch, func(c *call) bool {
		if c.ctx == nil || c.ctx.Err() == nil {
			return false
		}
		c.err = notApplied{errors.Join(c.ctx.Err(), errWithdrawn)}
		c.end()
		return true
	})
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
	l.since = time.Now()
	batch := l.waiting
	if len(batch) > batchMax {
		batch, l.waiting = batch[:batchMax:batchMax], batch[batchMax:]
		l.watch()
	} else {
		l.waiting = make([]*call, 0, len(batch)) // the next will be about as large
	}
	return batch
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
	cancelled, deadline := driver.Ends(ctx)
	var due <-chan time.Time
	var about <-chan struct{}
	switch left := time.Until(deadline); {
	case deadline.IsZero():
	case left > noHurry:
		about = l.alarms.at(deadline)
	default:
		timer := time.NewTimer(left)
		defer timer.Stop()
		due = timer.C
	}
	var ended error
	select {
	case <-c.done:
		return c.err
	case <-cancelled:
		ended = cmp.Or(ctx.Err(), context.Canceled)
	case <-due:
		ended = context.DeadlineExceeded
	case <-about:
		ended = context.DeadlineExceeded
	}
	if l.withdraw(c) {
		return notApplied{errors.Join(ended, errWithdrawn)}
	}
	return ended
}

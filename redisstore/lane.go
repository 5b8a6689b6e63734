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
	run     uint64 // the number of the runner, 0 if there is none
	runs    uint64 // how many runners there were

	timers sync.Pool // of *time.Timer, of callers that have waited
}

// A call is what is to be done to one lock.
type call struct {
	script *script
	tag    string // of the keys' hash slot, in a cluster
	lock   string
	lane   *lane // that it was put into

	// The arguments, of which a script has the first few or none.
	owner  string // with a line break
	ms     int64  // TTL, or time to keep the name
	floor  int64
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
	// himself.
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
	}
}

// begin starts a runner in the place of any before. The caller holds l.mu.
func (l *lane) begin() {
	l.runs++
	l.run = l.runs
	go l.carry(l.run)
}

// lead makes the caller the runner, if there is none, and returns its number.
func (l *lane) lead() (run uint64, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run != 0 {
		return 0, false
	}
	l.runs++
	l.run = l.runs
	return l.run, true
}

// carryAlone carries one call, as the runner, and starts another runner if more
// calls have come meanwhile.
func (l *lane) carryAlone(ctx context.Context, run uint64, c *call) {
	replace := time.AfterFunc(requestBound, func() { l.replace(run) })
	defer replace.Stop()
	if deadline, limited := ctx.Deadline(); !limited || time.Until(deadline) > requestBound {
		bounded, cancel := context.WithTimeout(ctx, requestBound)
		defer cancel()
		ctx = bounded
	}
	l.exec(ctx, []*call{c})
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
	replace := time.AfterFunc(requestBound, func() { l.replace(run) })
	defer replace.Stop()
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
		replace.Reset(requestBound)
		ctx, cancel := context.WithTimeout(context.Background(), requestBound)
		l.exec(ctx, batch)
		cancel()
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
	batch := l.waiting
	if len(batch) > batchMax {
		batch, l.waiting = batch[:batchMax:batchMax], batch[batchMax:]
	} else {
		l.waiting = make([]*call, 0, len(batch)) // the next will be about as large
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
	cancelled, deadline := driver.Ends(ctx)
	var due <-chan time.Time
	if !deadline.IsZero() {
		timer := l.timer(time.Until(deadline))
		defer func() {
			timer.Stop()
			l.timers.Put(timer)
		}()
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
	}
	if l.withdraw(c) {
		return notApplied{errors.Join(ended, errWithdrawn)}
	}
	return ended
}

// timer returns one that fires after d, which seldom comes to be.
func (l *lane) timer(d time.Duration) *time.Timer {
	timer, ok := l.timers.Get().(*time.Timer)
	if !ok {
		return time.NewTimer(d)
	}
	timer.Reset(d)
	return timer
}

package holdfast

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Finding is the result of one check of [Examine].
type Finding = driver.Finding

// ExamineOptions configure [Examine]. The zero value, and nil, mean the defaults.
type ExamineOptions struct {
	// TTL is the shortest TTL of the program's locks; 0 means DefaultTTL.
	TTL time.Duration

	// Prefix is put in front of the names that are tried, as Config.Prefix is.
	Prefix string

	// NoProbe takes no lock, so that nothing is written.
	NoProbe bool
}

// Bounds of an examination.
const (
	examineRequests  = 20               // how many requests are timed
	examineTime      = 2 * time.Second  // the end of the timing
	examineTimeout   = 3 * time.Second  // of one request, and of a notice
	examineStoreTime = 10 * time.Second // of the checks that the store makes itself
	examineLatency   = 10               // round trips that must fit into the first renewal, which is at TTL/3
	examineOffset    = time.Second      // the difference of clocks that is accepted
)

// Examine examines a store for what endangers locks: the settings of its servers, if it is a
// [driver.Examiner], how long requests take, whether a lock can be taken, excludes another owner,
// and is released, whether a waiter is notified of that, and how far the clocks are apart. It takes
// locks below holdfast-doctor/, with random names, and leaves nothing of them. The findings are in
// a fixed order, those of SeverityOK included.
//
//	findings, err := holdfast.Examine(ctx, locks.Store(), nil)
//	for _, f := range findings {
//		if f.Severity >= driver.SeverityWarning {
//			slog.Warn("locks", "finding", f)
//		}
//	}
//
// Each request has 3 s, the checks of the store have 10 s, and all of them end with ctx. The error
// matches [ErrUnavailable] if the store cannot be reached; then the findings are those made before
// that.
func Examine(ctx context.Context, store driver.Store, o *ExamineOptions) ([]Finding, error) {
	if o == nil {
		o = &ExamineOptions{}
	}
	e := &examination{ctx: ctx, store: store, guarantees: store.Guarantees(), options: *o}
	if e.options.TTL == 0 {
		e.options.TTL = DefaultTTL
	}
	if e.options.TTL < driver.MinTTL || e.options.TTL > driver.MaxTTL {
		return nil, fmt.Errorf("holdfast: examine: %w: TTL is not between %v and %v", ErrInvalid, driver.MinTTL, driver.MaxTTL)
	}
	if err := e.run(); err != nil {
		return e.findings, fmt.Errorf("holdfast: examine: %w", storeError(ctx, err))
	}
	return e.findings, nil
}

// An examination is one call of Examine.
type examination struct {
	ctx        context.Context
	store      driver.Store
	guarantees driver.Guarantees
	options    ExamineOptions
	name       string // that is tried
	owners     []string
	mayStay    bool // a request may have left something of the name
	findings   []Finding
}

func (e *examination) run() error {
	examiner, canExamine := e.store.(driver.Examiner)
	if canExamine {
		ctx, cancel := context.WithTimeout(e.ctx, examineStoreTime)
		defer cancel()
		findings, err := examiner.Examine(ctx, driver.Examination{TTL: e.options.TTL, NoProbe: e.options.NoProbe})
		e.findings = findings
		if err != nil {
			return err
		}
	}
	e.name = e.options.Prefix + "holdfast-doctor/" + rand.Text()
	if err := e.checkLatency(); err != nil {
		if e.hasFailed() {
			return nil // The failure is the reason.
		}
		return err
	}
	if e.options.NoProbe {
		return nil
	}
	if e.probe() {
		e.checkNotices()
	}
	for _, owner := range slices.Clone(e.owners) { // of what has failed; most hold nothing any more
		_, _ = e.release(owner)
	}
	e.checkTrace(examiner)
	return nil
}

// checkTrace removes what the store keeps of the name, and reports what is left, also after a
// failure. A request that failed may have taken the name all the same.
func (e *examination) checkTrace(examiner driver.Examiner) {
	if !e.mayStay {
		return
	}
	ctx, cancel := e.cleanupContext()
	defer cancel()
	found, err := false, error(nil)
	if e.guarantees.Lookup {
		_, found, err = e.store.Lookup(ctx, e.name)
	}
	if !found && err == nil && examiner != nil {
		err = examiner.Forget(ctx, e.name)
	}
	f := Finding{Check: "trace", Severity: driver.SeverityWarning, Want: "nothing left of the examination"}
	switch {
	case found || err != nil && len(e.owners) > 0:
		f.Found = fmt.Sprintf("the name %q may be taken still: it is gone in %v", e.name, probeTTL)
	case err != nil:
		f.Found = fmt.Sprintf("the name %q stays behind", e.name)
	default:
		return
	}
	if err != nil {
		f.Found += ": " + err.Error()
	}
	e.add(f)
}

func (e *examination) add(f Finding) { e.findings = append(e.findings, f) }

func (e *examination) hasFailed() bool {
	return slices.ContainsFunc(e.findings, func(f Finding) bool { return f.Severity == driver.SeverityFailure })
}

// checkLatency times requests that read. A renewal has from TTL/3 to the end of the TTL, and other
// requests come beside it.
func (e *examination) checkLatency() error {
	var took []time.Duration
	began := time.Now()
	for len(took) < examineRequests && (len(took) < 3 || time.Since(began) < examineTime) {
		sent := time.Now()
		ctx, cancel := context.WithTimeout(e.ctx, examineTimeout)
		_, _, err := e.store.Lookup(ctx, e.name)
		cancel()
		if errors.Is(err, ErrUnsupported) {
			return nil
		}
		if err != nil {
			return err
		}
		took = append(took, time.Since(sent))
	}
	slices.Sort(took)
	median, limit := took[len(took)/2], e.options.TTL/3
	f := Finding{Check: "latency", Severity: driver.SeverityOK,
		Found: fmt.Sprintf("a request takes %v, the slowest of %d took %v", roundDuration(median), len(took), roundDuration(took[len(took)-1]))}
	if median*examineLatency > limit {
		f.Severity = driver.SeverityWarning
		if median > limit {
			f.Severity = driver.SeverityFailure
		}
		f.Want = fmt.Sprintf("%d requests in a third of the TTL of %v", examineLatency, e.options.TTL)
		f.Remedy = fmt.Sprintf("a TTL of %v or more, or a store that is nearer", roundDuration(median*examineLatency*3))
	}
	e.add(f)
	return nil
}

// probeTTL bounds how long a name that was tried stays taken if nothing can be released.
const probeTTL = 10 * time.Second

// probe takes the name, has another owner refused, renews it, releases it, and takes it again,
// several times, and brackets the clock of the store meanwhile. It reports whether all that worked.
func (e *examination) probe() bool {
	const rounds = 10
	var offsets clockOffsets
	var last int64
	for range rounds {
		token, err := e.probeOnce(&offsets, last)
		if err != nil {
			f := Finding{Check: "probe", Severity: driver.SeverityFailure, Found: err.Error(),
				Want: "a lock that is taken, refused to others, renewed and released"}
			if later := (*driver.RetryError)(nil); errors.As(err, &later) {
				f.Severity, f.Remedy = driver.SeverityWarning, "another examination, later"
			}
			e.add(f)
			return false
		}
		last = token
	}
	e.add(Finding{Check: "probe", Severity: driver.SeverityOK, Found: "a lock was taken, refused to others, renewed and released"})
	if e.guarantees.Scope == driver.ScopeNetwork {
		e.checkClock(offsets)
	}
	return true
}

// probeOnce makes one round. It returns the token of its grant, which must be above last.
func (e *examination) probeOnce(offsets *clockOffsets, last int64) (token int64, err error) {
	sent := time.Now()
	owner, res, err := e.acquire(driver.AcquireRequest{})
	answered := time.Now()
	if err != nil || !res.Granted {
		return 0, probeError("take a free lock", err, "refused")
	}
	if e.guarantees.Fencing && res.Token <= last {
		return 0, fmt.Errorf("the token %d was granted after %d", res.Token, last)
	}
	if _, other, err := e.acquire(driver.AcquireRequest{}); err != nil || other.Granted {
		return 0, probeError("try a lock that is held", err, "granted, to a second owner")
	}
	ctx, cancel := context.WithTimeout(e.ctx, examineTimeout)
	defer cancel()
	if e.guarantees.Lookup {
		if rec, found, err := e.store.Lookup(ctx, e.name); err != nil || !found {
			return 0, probeError("look up a lock that is held", err, "not found")
		} else if !rec.Since.IsZero() {
			offsets.add(rec.Since.Sub(answered.Round(0)), rec.Since.Sub(sent.Round(0)))
		}
	}
	outcomes, err := e.store.Renew(ctx, []driver.RenewRequest{{Name: e.name, Owner: owner, TTL: probeTTL, Token: res.Token}})
	if err != nil || len(outcomes) != 1 || outcomes[0] != driver.Renewed {
		return 0, probeError("renew a lock", err, "lost")
	}
	if ended, err := e.release(owner); err != nil || !ended {
		return 0, probeError("release a lock", err, "not held")
	}
	return res.Token, nil
}

// probeError returns the error of a step that failed with err, or had a wrong result.
func probeError(step string, err error, result string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return fmt.Errorf("%s: it is %s", step, result)
}

// acquire makes a request of a new owner for the name.
func (e *examination) acquire(req driver.AcquireRequest) (owner string, res driver.AcquireResult, err error) {
	ctx, cancel := context.WithTimeout(e.ctx, examineTimeout)
	defer cancel()
	owner = rand.Text()
	e.owners = append(e.owners, owner)
	req.Name, req.Owner, req.Holder, req.TTL = e.name, owner, defaultHolder(), probeTTL
	res, err = e.store.Acquire(ctx, req)
	e.mayStay = e.mayStay || !driver.IsNotApplied(err)
	return owner, res, err
}

// release releases the hold or place of an owner, also after the end of e.ctx.
func (e *examination) release(owner string) (bool, error) {
	ctx, cancel := e.cleanupContext()
	defer cancel()
	ended, err := e.store.Release(ctx, driver.ReleaseRequest{Name: e.name, Owner: owner})
	if err == nil {
		e.owners = slices.DeleteFunc(e.owners, func(o string) bool { return o == owner })
	}
	return ended, err
}

func (e *examination) cleanupContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(e.ctx), examineTimeout)
}

// clockOffsets bracket how far the clock of the store is ahead of that of this host.
type clockOffsets struct {
	least, most time.Duration
	known       bool
}

// add adds a bracket. The time of a grant is between the sending of its request and the answer.
func (c *clockOffsets) add(least, most time.Duration) {
	if !c.known {
		c.least, c.most, c.known = least, most, true
		return
	}
	c.least, c.most = max(c.least, least), min(c.most, most)
}

// checkClock reports clocks that are certainly apart. A bracket is as wide as a request takes.
func (e *examination) checkClock(c clockOffsets) {
	if !c.known {
		return
	}
	f := Finding{Check: "clock", Severity: driver.SeverityOK, Found: fmt.Sprintf("the clock of the store is at most %v from that of this host",
		roundDuration(max(c.most, -c.least)))}
	if c.least > examineOffset || c.most < -examineOffset {
		f.Severity = driver.SeverityWarning
		ahead, direction := c.least, "ahead of"
		if c.most < 0 {
			ahead, direction = -c.most, "behind"
		}
		f.Found = fmt.Sprintf("the clock of the store is %v %s that of this host", roundDuration(ahead), direction)
		f.Want = fmt.Sprintf("clocks within %v: expiry does not depend on that, but times that are shown do, and tokens when a store is replaced", examineOffset)
		f.Remedy = "timedatectl set-ntp true, on both hosts"
	}
	e.add(f)
}

// checkNotices times the notice of a release to a waiter. A store may connect for notices when it
// first has a waiter, and send one for all names when it has: then there is another round.
func (e *examination) checkNotices() {
	const rounds = 3
	notices := make(chan string, 16)
	if notifier, ok := e.store.(driver.Notifier); ok {
		defer notifier.Notify(func(n driver.Notice) {
			if n.Kind != driver.Lost && (n.Name == e.name || n.Name == "") {
				select {
				case notices <- n.Name:
				default:
				}
			}
		})()
	}
	var f Finding
	for range rounds {
		var again bool
		if f, again = e.timeNotice(notices); !again {
			break
		}
	}
	e.add(f)
}

// timeNotice makes one round. It requests another one if all that came was a notice for all names.
func (e *examination) timeNotice(notices <-chan string) (f Finding, again bool) {
	f = Finding{Check: "notices", Severity: driver.SeverityFailure, Want: "a waiter that is notified of a release"}
	holder, res, err := e.acquire(driver.AcquireRequest{})
	if err != nil || !res.Granted {
		f.Found = probeError("take a free lock", err, "refused").Error()
		return f, false
	}
	waiter, res, err := e.acquire(driver.AcquireRequest{Queue: probeTTL})
	if err != nil || res.Granted {
		f.Found = probeError("wait for a lock that is held", err, "granted, to a second owner").Error()
		return f, false
	}
	if !res.Queued {
		f.Severity, f.Found, f.Want = driver.SeverityNote, "no notices: waiters try at intervals (Config.Backoff)", ""
		if e.guarantees.Fair {
			f.Severity = driver.SeverityWarning
			f.Want = "a place in the queue, so that waiters are served in order and at once"
			f.Remedy = "a connection without a pooler, and the rights for queues that the documentation of the store names"
		}
		return f, false
	}
	for len(notices) > 0 {
		<-notices // of the attempt itself
	}
	sent := time.Now()
	if ended, err := e.release(holder); err != nil || !ended {
		f.Found = probeError("release a lock", err, "not held").Error()
		return f, false
	}
	timeout := time.NewTimer(examineTimeout)
	defer timeout.Stop()
	select {
	case name := <-notices:
		if again = name != e.name; !again {
			f.Severity, f.Found, f.Want = driver.SeverityOK, fmt.Sprintf("a waiter was notified %v after the release was sent", roundDuration(time.Since(sent))), ""
			return f, false
		}
	case <-timeout.C:
	case <-e.ctx.Done():
		f.Severity, f.Found = driver.SeverityUnknown, "cannot tell: "+e.ctx.Err().Error()
		return f, false
	}
	_, _ = e.release(waiter) // which may hold the name by now
	f.Severity, f.Found = driver.SeverityWarning, fmt.Sprintf("a waiter was not notified of a release within %v", examineTimeout)
	f.Want, f.Remedy = "a notice at once", "the rights for notices that the documentation of the store names"
	return f, again
}

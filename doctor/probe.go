package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Bounds of a probe.
const (
	requestTimeout = 3 * time.Second  // of one request, and of a notice
	probeTTL       = 10 * time.Second // how long a name that was tried stays taken if nothing can be released
	leastRoundTrip = 10               // round trips that must fit into the first renewal, which is at TTL/3
	leastOffset    = time.Second      // the difference of clocks that is accepted
)

// A probe takes and releases a name of a store of any kind.
type probe struct {
	ctx        context.Context
	store      driver.Store
	guarantees driver.Guarantees
	options    Options
	name       string
	owners     []string // that may hold the name, or wait for it
	findings   list
}

func (p *probe) run() error {
	p.name = p.options.Prefix + "holdfast-doctor/" + rand.Text()
	if err := p.checkLatency(); err != nil || p.options.NoProbe {
		return err
	}
	if p.tryLock() {
		p.checkNotices()
	}
	p.releaseAll()
	return nil
}

// checkLatency times requests that read. A renewal has from TTL/3 to the end of the TTL, and other
// requests come beside it.
func (p *probe) checkLatency() error {
	var took []time.Duration
	for began := time.Now(); len(took) < 20 && (len(took) < 3 || time.Since(began) < 2*time.Second); {
		sent := time.Now()
		ctx, cancel := context.WithTimeout(p.ctx, requestTimeout)
		_, err := p.store.Lookup(ctx, p.name)
		cancel()
		if errors.Is(err, holdfast.ErrUnsupported) {
			return nil
		}
		if err != nil {
			return err
		}
		took = append(took, time.Since(sent))
	}
	slices.Sort(took)
	median, limit, severity := took[len(took)/2], p.options.TTL/3, Warning
	if median > limit {
		severity = Failure
	}
	text := fmt.Sprintf("a request takes %v, the slowest of %d took %v", round(median), len(took), round(took[len(took)-1]))
	p.findings.check("latency", text, median*leastRoundTrip > limit, severity, text, fmt.Sprintf("%d requests in a third of the TTL of %v", leastRoundTrip, p.options.TTL),
		fmt.Sprintf("a TTL of %v or more, or a store that is nearer", round(median*leastRoundTrip*3)))
	return nil
}

// tryLock takes the name, has another owner refused, renews it and releases it, several times, and
// brackets the clock of the store meanwhile. It reports whether all that worked.
func (p *probe) tryLock() bool {
	const rounds = 10
	least, most, known := time.Duration(0), time.Duration(0), false
	var last int64
	for range rounds {
		sent := time.Now()
		token, since, err := p.tryOnce(last)
		if err != nil {
			severity, remedy := Failure, ""
			if later := (*driver.RetryError)(nil); errors.As(err, &later) {
				severity, remedy = Warning, "another examination, later"
			}
			p.findings.check("probe", "", true, severity, err.Error(), "a lock that is taken, refused to others, renewed and released", remedy)
			return false
		}
		last = token
		if since.IsZero() {
			continue
		}
		// The time of a grant is between the sending of its request and now.
		low, high := since.Sub(time.Now().Round(0)), since.Sub(sent.Round(0))
		if !known {
			least, most, known = low, high, true
		}
		least, most = max(least, low), min(most, high)
	}
	p.findings.check("probe", "a lock was taken, refused to others, renewed and released", false, 0, "", "", "")
	if known && p.guarantees.Failover != driver.FateFreed { // The store has a server.
		p.checkClock(least, most)
	}
	return true
}

// tryOnce makes one round. It returns the token of its grant, which must be above last, and the
// time of the grant by the clock of the store.
func (p *probe) tryOnce(last int64) (token int64, since time.Time, err error) {
	owner, res, err := p.acquire(0)
	if err != nil || !res.Granted {
		return 0, since, stepError("take a free lock", err, "refused")
	}
	if p.guarantees.Fencing && res.Token <= last {
		return 0, since, fmt.Errorf("the token %d was granted after %d", res.Token, last)
	}
	ctx, cancel := context.WithTimeout(p.ctx, requestTimeout)
	defer cancel()
	holds, err := p.store.Lookup(ctx, p.name)
	switch {
	case errors.Is(err, holdfast.ErrUnsupported):
	case err != nil || len(holds) != 1:
		return 0, since, stepError("look up a lock that is held", err, "not found")
	default:
		since = holds[0].Since
	}
	if _, other, err := p.acquire(0); err != nil || other.Granted {
		return 0, since, stepError("try a lock that is held", err, "granted, to a second owner")
	}
	ctx, cancel = context.WithTimeout(p.ctx, requestTimeout)
	defer cancel()
	entries, err := p.store.Renew(ctx, []driver.RenewRequest{{Name: p.name, Owner: owner, TTL: probeTTL, Token: res.Token}})
	if err != nil || len(entries) != 1 || entries[0].State != driver.Held {
		return 0, since, stepError("renew a lock", err, "lost")
	}
	if ended, err := p.release(owner); err != nil || !ended {
		return 0, since, stepError("release a lock", err, "not held")
	}
	return res.Token, since, nil
}

// stepError returns the error of a step that failed with err, or had a wrong result.
func stepError(step string, err error, result string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return fmt.Errorf("%s: it is %s", step, result)
}

// acquire makes a request of a new owner for the name, which waits for that long. It makes another
// one, as package holdfast does, if the store asks for it soon: the votes of a quorum may be split.
func (p *probe) acquire(wait time.Duration) (owner string, res driver.Result, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, requestTimeout)
	defer cancel()
	for {
		owner = rand.Text()
		res, err = p.store.Acquire(ctx, driver.Request{Name: p.name, Owner: owner, Holder: "holdfast-doctor", TTL: probeTTL, Place: wait})
		if !driver.IsNotApplied(err) {
			p.owners = append(p.owners, owner)
		}
		later := (*driver.RetryError)(nil)
		if !errors.As(err, &later) || later.After == 0 || later.After > 250*time.Millisecond || ctx.Err() != nil {
			return owner, res, err
		}
		time.Sleep(later.After)
	}
}

// release releases the hold or place of an owner, also after the end of the examination.
func (p *probe) release(owner string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), requestTimeout)
	defer cancel()
	ended, err := p.store.Release(ctx, driver.ReleaseRequest{Name: p.name, Owner: owner})
	if err == nil {
		p.owners = slices.DeleteFunc(p.owners, func(o string) bool { return o == owner })
	}
	return ended, err
}

// releaseAll releases what may be held, or waited for.
func (p *probe) releaseAll() {
	for _, owner := range slices.Clone(p.owners) {
		_, _ = p.release(owner) // Most hold nothing any more.
	}
}

// checkClock reports clocks that are certainly apart. The clock of the store is between least and
// most ahead of this host's.
func (p *probe) checkClock(least, most time.Duration) {
	ahead, direction := least, "ahead of"
	if most < 0 {
		ahead, direction = -most, "behind"
	}
	p.findings.check("clock", fmt.Sprintf("the clocks of the store and of this host are at most %v apart", round(max(most, -least))),
		least > leastOffset || most < -leastOffset, Warning, fmt.Sprintf("the clock of the store is %v %s this host's", round(ahead), direction),
		fmt.Sprintf("clocks within %v: expiry does not depend on that, but times that are shown do, and tokens when a store is replaced", leastOffset),
		"timedatectl set-ntp true, on both hosts")
}

// checkNotices times the notice of a release to a waiter. A store may connect for notices when it
// first has a waiter, too late for the notice of that one: the second round counts.
func (p *probe) checkNotices() {
	notices := make(chan struct{}, 16)
	if notifier, ok := p.store.(driver.Notifier); ok {
		defer notifier.Notify(func(name, owner string, token int64) {
			if name == p.name {
				select {
				case notices <- struct{}{}:
				default:
				}
			}
		})()
	}
	_ = p.timeNotice(notices)
	p.findings = append(p.findings, p.timeNotice(notices))
}

// timeNotice makes one round.
func (p *probe) timeNotice(notices <-chan struct{}) Finding {
	defer p.releaseAll() // The waiter may hold the name.
	f := Finding{Check: "notices", Severity: Failure, Want: "a waiter that is notified of a release"}
	holder, res, err := p.acquire(0)
	if err != nil || !res.Granted {
		f.Found = stepError("take a free lock", err, "refused").Error()
		return f
	}
	_, res, err = p.acquire(probeTTL)
	if err != nil || res.Granted {
		f.Found = stepError("wait for a lock that is held", err, "granted, to a second owner").Error()
		return f
	}
	_, notifies := p.store.(driver.Notifier)
	if !res.Waiting && p.guarantees.Queue {
		f.Severity, f.Found, f.Want = Warning, "there is no place in the queue", "a place in the queue, so that waiters are served in order and at once"
		f.Remedy = "a connection without a pooler, and the rights for queues that the documentation of the store names"
		return f
	}
	if !res.Waiting || !notifies {
		return Finding{Check: f.Check, Severity: Note, Found: "no notices: waiters look at intervals (Config.Backoff)"}
	}
	for len(notices) > 0 {
		<-notices // of the attempt itself
	}
	sent := time.Now()
	if ended, err := p.release(holder); err != nil || !ended {
		f.Found = stepError("release a lock", err, "not held").Error()
		return f
	}
	f.Severity, f.Found = Warning, fmt.Sprintf("a waiter was not notified of a release within %v", requestTimeout)
	f.Want, f.Remedy = "a notice at once", "the rights for notices that the documentation of the store names"
	select {
	case <-notices:
		f = Finding{Check: f.Check, Severity: OK, Found: fmt.Sprintf("a waiter was notified %v after the release was sent", round(time.Since(sent)))}
	case <-time.After(requestTimeout):
	case <-p.ctx.Done():
	}
	return f
}

// round shortens a duration for people.
func round(d time.Duration) time.Duration {
	unit := time.Microsecond
	for unit < d/100 {
		unit *= 10
	}
	return d.Round(unit)
}

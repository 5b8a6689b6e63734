package drivertest

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memstore"
)

// A world is a place where locks are kept, for several processes, in one store in memory. What a
// bug has replaced is broken.
type world struct {
	driver.Notifier
	bug    *bug
	claims driver.Guarantees

	mu        sync.Mutex
	processes []*process
	occupied  []string

	// What bugs remember.
	flag   bool
	owner  map[string]string // that was granted a name last
	marked map[string]bool
	count  int
}

// A process is a store of the world that is as if it were in a process of its own.
type process struct {
	*world

	// The world guards these.
	owners    map[string]driver.Request // that this process has sent
	listeners []*func(name, owner string, token int64)
	closed    bool
	silent    bool
	fault     Fault
	busyUntil time.Time
	cut       bool
	skew      time.Duration
}

var everything = driver.Guarantees{
	Store: "model", Fencing: true, Queue: true, Limits: true, Keep: true, Tokens: driver.MaxTokens,
	Crash: driver.FateKept, Restart: driver.FateKept, Failover: driver.FateKept,
}

func newWorld(claims driver.Guarantees, b *bug) *world {
	w := &world{Notifier: memstore.New(), bug: b, claims: claims, owner: map[string]string{}, marked: map[string]bool{}}
	w.Notifier.Notify(w.tell)
	return w
}

// harness returns a harness for the suite, in virtual time.
func (b *bug) harness(claims driver.Guarantees) Harness {
	return Harness{Virtual: true, New: func(testing.TB) Backing {
		w := newWorld(claims, b)
		backing := w.backing()
		if b.backing != nil {
			b.backing(w, &backing)
		}
		return backing
	}}
}

func (w *world) backing() Backing {
	locked := func(s driver.Store, change func(p *process)) {
		w.mu.Lock()
		defer w.mu.Unlock()
		change(processOf(s))
	}
	return Backing{
		Open: func(testing.TB) driver.Store { return w.open() },
		OpenSkewed: func(_ testing.TB, skew time.Duration) driver.Store {
			s := w.open()
			locked(s, func(p *process) { p.skew = skew })
			return s
		},
		Restart: func(tb testing.TB) { w.restart(tb) },
		Crash: func(tb testing.TB, s driver.Store) {
			if w.claims.Crash == driver.FateFreed {
				w.free(processOf(s))
			}
		},
		Fault:   func(_ testing.TB, s driver.Store, f Fault) { locked(s, func(p *process) { p.fault = f }) },
		Sever:   func(_ testing.TB, s driver.Store) { locked(s, func(p *process) { p.cut = true }) },
		Silence: func(_ testing.TB, s driver.Store) { locked(s, func(p *process) { p.silent = true }) },
		Busy: func(_ testing.TB, s driver.Store, d time.Duration) {
			locked(s, func(p *process) { p.busyUntil = time.Now().Add(d) })
		},
		Occupy: func(_ testing.TB, name string, way int) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.occupied = append(w.occupied, name)
			return way < 2
		},
	}
}

func processOf(s driver.Store) *process {
	if q, ok := s.(quiet); ok {
		return q.Store.(*process)
	}
	return s.(*process)
}

// quiet hides that a store is a Notifier.
type quiet struct{ driver.Store }

func (w *world) open() driver.Store {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &process{world: w, owners: map[string]driver.Request{}}
	w.processes = append(w.processes, p)
	if w.bug.quiet {
		return quiet{p}
	}
	return p
}

// free ends what a process has that is not Detached.
func (w *world) free(p *process) {
	w.mu.Lock()
	owners := maps.Clone(p.owners)
	w.mu.Unlock()
	for _, req := range owners {
		if !req.Detached {
			_, _ = w.Notifier.Release(context.Background(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
		}
	}
}

func (w *world) restart(testing.TB) {
	if w.claims.Restart == driver.FateFreed {
		for _, p := range w.processes {
			w.free(p)
		}
	}
}

// tell passes a notice on to the process that has the owner.
func (w *world) tell(name, owner string, token int64) {
	if !w.claims.Fencing {
		token = 0
	}
	for _, p := range w.listening() {
		w.mu.Lock()
		_, own := p.owners[owner]
		w.mu.Unlock()
		if own && (w.bug.notice == nil || w.bug.notice(p, name, owner, &token)) {
			p.notify(name, owner, token)
		}
	}
}

func (w *world) listening() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.processes)
}

func (p *process) notify(name, owner string, token int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.listeners {
		(*f)(name, owner, token)
	}
}

func (p *process) Notify(f func(name, owner string, token int64)) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(p.listeners, &f)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.listeners = slices.DeleteFunc(p.listeners, func(g *func(string, string, int64)) bool { return g == &f })
	}
}

var errLost = errors.New("lost")

// call runs a request, unless the context has ended, the process is closed, or something fails.
func (p *process) call(ctx context.Context, apply func() error) error {
	works := func() error { return p.works(ctx, apply) }
	if p.bug.call != nil {
		return p.bug.call(p, ctx, apply, works)
	}
	return works()
}

func (p *process) works(ctx context.Context, apply func() error) error {
	p.mu.Lock()
	closed, silent, fault, busy := p.closed, p.silent, p.fault, time.Until(p.busyUntil)
	p.fault = 0
	p.mu.Unlock()
	switch {
	case closed:
		return driver.ErrClosed
	case ctx.Err() != nil:
		return driver.NotApplied(ctx.Err())
	case silent:
		<-ctx.Done()
		return ctx.Err()
	case busy > 0:
		return &driver.RetryError{Err: errors.New("busy"), After: busy}
	case fault == RequestLost:
		return errLost
	}
	if err := apply(); err != nil || fault == 0 {
		return err
	}
	return errLost
}

// hook returns the function of a bug, or else that of the store in memory.
func hook[F any](broken func(*process) F, p *process, works F) F {
	if broken != nil {
		return broken(p)
	}
	return works
}

type (
	acquireFunc func(context.Context, driver.Request) (driver.Result, error)
	renewFunc   func(context.Context, []driver.RenewRequest) ([]driver.Entry, error)
	releaseFunc func(context.Context, driver.ReleaseRequest) (bool, error)
	lookupFunc  func(context.Context, string) ([]driver.Record, error)
	breakFunc   func(context.Context, string, int64) ([]driver.Record, error)
	listFunc    func(context.Context, string) iter.Seq2[driver.Record, error]
)

func (p *process) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	req.Name, req.Owner = p.text(req.Name), p.secret(req.Owner)
	err = p.call(ctx, func() (err error) {
		p.mu.Lock()
		if _, known := p.owners[req.Owner]; !known {
			p.owners[req.Owner] = req
		}
		p.mu.Unlock()
		res, err = hook(p.bug.acquire, p, p.acquire)(background, req)
		return err
	})
	if err != nil {
		res = driver.Result{}
	}
	return res, err
}

// text and secret return a name and an owner as the store understands them.
func (p *process) text(name string) string {
	if p.bug.text == nil {
		return name
	}
	return p.bug.text(name)
}

func (p *process) secret(owner string) string {
	if p.bug.secret == nil {
		return owner
	}
	return p.bug.secret(owner)
}

// acquire does what the claims promise.
func (p *process) acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	g := p.claims
	switch {
	case req.Floor > 0 && req.Place > 0:
		return driver.Result{}, driver.ErrInvalid
	case slices.Contains(p.occupied, req.Name):
		return driver.Result{}, driver.ErrCorrupt
	case !g.Limits && req.Limit > 1, p.bug.bare && (req.Detached || req.Metadata != nil):
		return driver.Result{}, driver.ErrUnsupported
	case req.Tokens > max(g.Tokens, 1):
		return driver.Result{}, driver.ErrInvalid
	case !g.Queue:
		req.Place = 0
	}
	res, err := p.Notifier.Acquire(ctx, p.grain(req))
	if !g.Fencing {
		res.Token, res.Held.Token = 0, 0
	}
	return res, err
}

// grain lets entries last as much longer as the claims allow.
func (p *process) grain(req driver.Request) driver.Request {
	req.TTL += p.claims.Grain
	if req.Place > 0 {
		req.Place += p.claims.Grain
	}
	return req
}

func (p *process) Renew(ctx context.Context, reqs []driver.RenewRequest) (entries []driver.Entry, err error) {
	err = p.call(ctx, func() (err error) {
		reqs := slices.Clone(reqs)
		for i := range reqs {
			reqs[i].TTL += p.claims.Grain
			reqs[i].Name, reqs[i].Owner = p.text(reqs[i].Name), p.secret(reqs[i].Owner)
		}
		entries, err = hook(p.bug.renew, p, p.Notifier.Renew)(background, reqs)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range entries {
		if !p.claims.Fencing {
			entries[i].Token = 0
		}
	}
	return entries, nil
}

func (p *process) Release(ctx context.Context, req driver.ReleaseRequest) (ended bool, err error) {
	req.Name, req.Owner = p.text(req.Name), p.secret(req.Owner)
	err = p.call(ctx, func() (err error) {
		if req.Keep > 0 && !p.claims.Keep {
			return hook(p.bug.keepUnclaimed, p, func(context.Context, driver.ReleaseRequest) (bool, error) {
				return false, driver.ErrUnsupported
			}).err(background, req)
		}
		if req.Keep > 0 {
			req.Keep += p.claims.Grain
		}
		ended, err = hook(p.bug.release, p, p.Notifier.Release)(background, req)
		return err
	})
	return ended && err == nil, err
}

func (f releaseFunc) err(ctx context.Context, req driver.ReleaseRequest) error {
	_, err := f(ctx, req)
	return err
}

func (p *process) Lookup(ctx context.Context, name string) (records []driver.Record, err error) {
	name = p.text(name)
	err = p.call(ctx, func() (err error) {
		switch {
		case p.bug.bare && p.bug.lookup == nil:
			return driver.ErrUnsupported
		case slices.Contains(p.occupied, name) && p.bug.lookup == nil:
			return driver.ErrCorrupt
		}
		records, err = hook(p.bug.lookup, p, p.Notifier.Lookup)(background, name)
		return err
	})
	return p.shown(records), err
}

// shown removes the tokens that are not claimed.
func (p *process) shown(records []driver.Record) []driver.Record {
	for i := range records {
		if !p.claims.Fencing && p.bug.lookup == nil {
			records[i].Token = 0
		}
	}
	return records
}

func (p *process) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		err := p.call(ctx, func() error {
			if p.bug.bare && p.bug.list == nil {
				return driver.ErrUnsupported
			}
			for _, name := range p.occupied {
				if strings.HasPrefix(name, prefix) && !yield(driver.Record{}, driver.ErrCorrupt) {
					return nil
				}
			}
			for rec, err := range hook(p.bug.list, p, p.Notifier.List)(background, prefix) {
				if !yield(p.shown([]driver.Record{rec})[0], err) {
					return nil
				}
			}
			return nil
		})
		if err != nil {
			yield(driver.Record{}, err)
		}
	}
}

func (p *process) Break(ctx context.Context, name string, token int64) (records []driver.Record, err error) {
	name = p.text(name)
	err = p.call(ctx, func() (err error) {
		if p.bug.bare && p.bug.breaks == nil {
			return driver.ErrUnsupported
		}
		records, err = hook(p.bug.breaks, p, p.Notifier.Break)(background, name, token)
		return err
	})
	return p.shown(records), err
}

func (p *process) Guarantees() driver.Guarantees {
	if p.bug.guarantees != nil {
		return p.bug.guarantees(p)
	}
	return p.claims
}

func (p *process) Close() error {
	if p.bug.close != nil {
		return p.bug.close(p)
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return nil
}

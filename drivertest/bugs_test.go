package drivertest

import (
	"context"
	"iter"
	"maps"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A bug is one way in which a store is broken: some of its methods are replaced.
type bug struct {
	name   string
	fails  string            // the cases that fail because of it
	claims driver.Guarantees // everything, unless given

	acquire       func(p *process) acquireFunc
	renew         func(p *process) renewFunc
	release       func(p *process) releaseFunc
	keepUnclaimed func(p *process) releaseFunc
	lookup        func(p *process) lookupFunc
	list          func(p *process) listFunc
	breaks        func(p *process) breakFunc
	guarantees    func(p *process) driver.Guarantees
	close         func(p *process) error

	// notice reports whether a notice is to be sent.
	notice func(p *process, name, owner string, token *int64) bool

	// call makes a call, which works would make.
	call func(p *process, ctx context.Context, apply, works func() error) error

	text, secret func(string) string
	backing      func(w *world, b *Backing)

	bare  bool // supports only what the claims name; no bug
	quiet bool // is not a Notifier; no bug
}

// Claims of stores that do everything but one thing.
var (
	noFencing    = claiming(func(g *driver.Guarantees) { g.Fencing, g.Tokens = false, 0 })
	noLimits     = claiming(func(g *driver.Guarantees) { g.Limits = false })
	noKeep       = claiming(func(g *driver.Guarantees) { g.Keep = false })
	crashFrees   = claiming(func(g *driver.Guarantees) { g.Crash = driver.FateFreed })
	restartFrees = claiming(func(g *driver.Guarantees) { g.Restart = driver.FateFreed })
	background   = context.Background()
)

// asking changes the requests of Acquire.
func asking(change func(p *process, req *driver.Request)) func(*process) acquireFunc {
	return func(p *process) acquireFunc {
		return func(ctx context.Context, req driver.Request) (driver.Result, error) {
			change(p, &req)
			return p.acquire(ctx, req)
		}
	}
}

// answering changes the results of Acquire.
func answering(change func(p *process, req driver.Request, res *driver.Result, err *error)) func(*process) acquireFunc {
	return func(p *process) acquireFunc {
		return func(ctx context.Context, req driver.Request) (driver.Result, error) {
			res, err := p.acquire(ctx, req)
			if res.Granted {
				p.mu.Lock()
				p.owner[req.Name] = req.Owner
				p.mu.Unlock()
			}
			change(p, req, &res, &err)
			return res, err
		}
	}
}

func remembers(*process, driver.Request, *driver.Result, *error) {}

// renewing changes the requests of Renew.
func renewing(change func(p *process, req *driver.RenewRequest)) func(*process) renewFunc {
	return func(p *process) renewFunc {
		return func(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
			for i := range reqs {
				change(p, &reqs[i])
			}
			return p.Notifier.Renew(ctx, reqs)
		}
	}
}

// renewed changes the answers of Renew.
func renewed(change func(p *process, req driver.RenewRequest, e *driver.Entry)) func(*process) renewFunc {
	return func(p *process) renewFunc {
		return func(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
			entries, err := p.Notifier.Renew(ctx, reqs)
			for i := range entries {
				change(p, reqs[i], &entries[i])
			}
			return entries, err
		}
	}
}

// released replaces Release.
func released(f func(p *process, req driver.ReleaseRequest) bool) func(*process) releaseFunc {
	return func(p *process) releaseFunc {
		return func(_ context.Context, req driver.ReleaseRequest) (bool, error) { return f(p, req), nil }
	}
}

// free releases as a correct store does.
func (p *process) end(name, owner string, keep time.Duration) bool {
	ended, _ := p.Notifier.Release(background, driver.ReleaseRequest{Name: name, Owner: owner, Keep: keep})
	return ended
}

// state returns what an owner has.
func (p *process) state(name, owner string) driver.State {
	got, _ := p.Notifier.Renew(background, []driver.RenewRequest{{Name: name, Owner: owner, TTL: 1}})
	return got[0].State
}

// once reports whether it is called with a key for the first time.
func (w *world) once(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.marked[key]
	w.marked[key] = true
	return first
}

func (w *world) set(flag bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flag = flag
}

func (w *world) isSet() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flag
}

// lastOwner returns the owner that was granted a name last, or else owner.
func (w *world) lastOwner(name, owner string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.owner[name]; ok {
		return last
	}
	return owner
}

// request returns what an owner of the process has requested.
func (p *process) request(owner string) (driver.Request, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	req, ok := p.owners[owner]
	return req, ok
}

// showing changes the records of Lookup.
func showing(change func(rec *driver.Record)) func(*process) lookupFunc {
	return func(p *process) lookupFunc {
		return func(ctx context.Context, name string) ([]driver.Record, error) {
			records, err := p.Notifier.Lookup(ctx, name)
			for i := range records {
				change(&records[i])
			}
			return records, err
		}
	}
}

// listing changes what List yields. prefix is what the correct store is called with.
func listing(prefix func(string) string, change func(prefix string, records []driver.Record) []driver.Record) func(*process) listFunc {
	return func(p *process) listFunc {
		return func(ctx context.Context, asked string) iter.Seq2[driver.Record, error] {
			return func(yield func(driver.Record, error) bool) {
				var all []driver.Record
				for rec := range p.Notifier.List(ctx, prefix(asked)) {
					all = append(all, rec)
				}
				for _, rec := range change(asked, all) {
					if !yield(rec, nil) {
						return
					}
				}
			}
		}
	}
}

func same(prefix string) string { return prefix }
func none(string) string        { return "" }

// breaking replaces Break.
func breaks(f func(p *process, name string, token int64) []driver.Record) func(*process) breakFunc {
	return func(p *process) breakFunc {
		return func(_ context.Context, name string, token int64) ([]driver.Record, error) {
			return f(p, name, token), nil
		}
	}
}

// broken breaks as a correct store does.
func (p *process) broken(name string, token int64) []driver.Record {
	records, _ := p.Notifier.Break(background, name, token)
	return records
}

// snapshot returns what the owners of the process have requested.
func (p *process) snapshot() map[string]driver.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.owners)
}

// calling changes the errors of all calls.
func calling(change func(p *process, ctx context.Context, err error) error) func(*process, context.Context, func() error, func() error) error {
	return func(p *process, ctx context.Context, _, works func() error) error { return change(p, ctx, works()) }
}

package olddriver

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// remember records a request before it is sent.
func (a *Adapter) remember(req AcquireRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if now.After(a.sweepAt) {
		for key, o := range a.owners {
			if now.After(o.until) {
				delete(a.owners, key)
			}
		}
		a.sweepAt = now.Add(sweepInterval)
	}
	a.owners[[2]string{req.Name, req.Owner}] = &owner{req: req, until: now.Add(max(req.TTL, req.Queue))}
}

// recall returns what is remembered of an owner, and reports whether there is anything.
func (a *Adapter) recall(name, id string) (owner, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := a.owners[[2]string{name, id}]; o != nil && !time.Now().After(o.until) {
		return *o, true
	}
	return owner{}, false
}

// keep records the answer that an owner waits or holds for d, if the owner is remembered.
func (a *Adapter) keep(name, id string, waiting bool, token int64, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := a.owners[[2]string{name, id}]; o != nil {
		o.waiting, o.token = waiting, token
		if until := time.Now().Add(d); until.After(o.until) {
			o.until = until
		}
	}
}

func (a *Adapter) forget(name, id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.owners, [2]string{name, id})
}

// Notify implements [driver.Notifier]. A store that is no Notifier has no notices.
func (a *Adapter) Notify(f func(name, owner string, token int64)) (stop func()) {
	n, ok := a.old.(Notifier)
	if !ok {
		return func() {}
	}
	return n.Notify(func(x Notice) {
		token := x.Token
		if known, _ := a.recall(x.Name, x.Owner); x.Kind != Granted || x.Tokens < known.req.Tokens {
			token = 0 // The owner learns by Renew what it has.
		}
		f(x.Name, x.Owner, token)
	})
}

// flatten returns a hold and the others of its name.
func flatten(old Record, found bool, err error) ([]driver.Record, error) {
	if err != nil || !found {
		return nil, err
	}
	records := []driver.Record{NewRecord(old)}
	for _, other := range old.Others {
		other.Waiting = old.Waiting
		records = append(records, NewRecord(other))
	}
	return records, nil
}

// NewRecord returns the record of one hold in the form of the new contract.
func NewRecord(old Record) driver.Record {
	limit := old.Limit
	if limit == Shared {
		limit = driver.Shared
	}
	return driver.Record{Name: old.Name, Holder: old.Holder, Token: old.Token, Since: old.Since, Remaining: old.Remaining,
		Kept: old.Kept, Limit: limit, Waiting: old.Waiting, Metadata: old.Metadata}
}

package drivertest

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A memory is a correct store, as plain as can be. The broken ones are made from it.
type memory struct {
	mu     sync.Mutex
	names  map[string][]*memoryEntry
	last   map[string]int64 // token of each name
	notify []func(name, owner string, token int64)
}

type memoryEntry struct {
	driver.Request
	token      int64
	since, end time.Time
	kept, told bool
}

func newMemory() driver.Notifier {
	return &memory{names: map[string][]*memoryEntry{}, last: map[string]int64{}}
}

func (m *memory) Guarantees() driver.Guarantees { return everything }

func (m *memory) Close() error { return nil }

func (m *memory) Notify(f func(name, owner string, token int64)) (stop func()) {
	m.notify = append(m.notify, f)
	return func() {}
}

func holds(entries []*memoryEntry) int {
	least := driver.Shared
	for i, e := range entries {
		if least = min(least, max(e.Limit, 1)); i >= least {
			return i
		}
	}
	return len(entries)
}

// change lets f change the live entries of a name, and tells those that become holds by it, and
// those that f returns to look.
func (m *memory) change(name string, f func(entries []*memoryEntry) (after, look []*memoryEntry)) {
	m.mu.Lock()
	before := m.names[name]
	live := slices.DeleteFunc(slices.Clone(before), func(e *memoryEntry) bool { return !e.end.After(time.Now()) })
	after, look := f(live)
	m.names[name] = after
	var told []*memoryEntry
	for _, e := range after[:holds(after)] {
		if !e.told && !e.kept && slices.Contains(before, e) {
			told = append(told, e)
		}
		e.told = true
	}
	m.mu.Unlock()
	for _, notify := range m.notify {
		for _, e := range told {
			notify(name, e.Owner, e.token)
		}
		for _, e := range look {
			notify(name, e.Owner, 0)
		}
	}
}

func (m *memory) Acquire(_ context.Context, req driver.Request) (res driver.Result, err error) {
	m.change(req.Name, func(entries []*memoryEntry) (after, look []*memoryEntry) {
		now := time.Now()
		several := req.Tokens > 1 && (req.Tokens > driver.MaxTokens || req.Limit > 1 || req.Floor > 0)
		if several || req.Floor > 0 && req.Place > 0 || req.Floor > now.Add(driver.MaxLead).UnixMicro() {
			err = driver.ErrInvalid
			return entries, nil
		}
		if slices.ContainsFunc(entries, func(e *memoryEntry) bool { return e.Owner == req.Owner && !e.kept }) {
			err = errors.New("the owner has an entry")
			return entries, nil
		}
		e := &memoryEntry{Request: req, token: max(m.last[req.Name]+1, now.UnixMicro(), req.Floor), since: now, end: now.Add(req.TTL)}
		after = append(slices.Clone(entries), e)
		if res.Granted = holds(after) == len(after); !res.Granted {
			res.Waiting, e.end = req.Place > 0, now.Add(req.Place)
			res.Held = recordsOf(entries)[0]
		}
		if !res.Granted && !res.Waiting {
			return entries, nil
		}
		m.last[req.Name], res.Token = e.token+int64(max(req.Tokens, 1))-1, e.token
		return after, nil
	})
	return res, err
}

// recordsOf returns the records of the holds.
func recordsOf(entries []*memoryEntry) (records []driver.Record) {
	for _, e := range entries[:holds(entries)] {
		rec := driver.Record{
			Name: e.Name, Token: e.token, Since: e.since, Remaining: time.Until(e.end), Kept: e.kept, Limit: e.Limit,
			Waiting: len(entries) - holds(entries),
		}
		if !e.kept {
			rec.Holder, rec.Metadata = e.Holder, e.Metadata
		}
		records = append(records, rec)
	}
	return records
}

func (m *memory) Renew(_ context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	answers := make([]driver.Entry, len(reqs))
	for i, req := range reqs {
		m.change(req.Name, func(entries []*memoryEntry) (after, look []*memoryEntry) {
			answers[i].State = driver.Lost
			for j, e := range entries {
				if e.Owner != req.Owner || e.kept || req.Token != 0 && req.Token != e.token {
					continue
				}
				if end := time.Now().Add(req.TTL); end.After(e.end) {
					e.end = end
				}
				answers[i] = driver.Entry{State: driver.Waiting, Token: e.token}
				if j < holds(entries) {
					answers[i].State = driver.Held
				}
			}
			return entries, nil
		})
	}
	return answers, nil
}

func (m *memory) Release(_ context.Context, req driver.ReleaseRequest) (ended bool, err error) {
	m.change(req.Name, func(entries []*memoryEntry) (after, look []*memoryEntry) {
		for i, e := range entries {
			switch {
			case e.Owner != req.Owner || e.kept && req.Keep == 0:
			case req.Keep > 0 && i < holds(entries):
				e.kept, e.end, ended = true, time.Now().Add(req.Keep), true
			default:
				ended = req.Keep == 0
				return slices.Delete(entries, i, i+1), nil
			}
		}
		return entries, nil
	})
	return ended, nil
}

func (m *memory) Lookup(_ context.Context, name string) (records []driver.Record, err error) {
	m.change(name, func(entries []*memoryEntry) (after, look []*memoryEntry) {
		records = recordsOf(entries)
		return entries, nil
	})
	return records, nil
}

func (m *memory) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		m.mu.Lock()
		names := slices.Sorted(maps.Keys(m.names))
		m.mu.Unlock()
		for _, name := range names {
			records, _ := m.Lookup(ctx, name)
			for _, rec := range records {
				if strings.HasPrefix(name, prefix) && !yield(rec, nil) {
					return
				}
			}
		}
	}
}

func (m *memory) Break(_ context.Context, name string, token int64) (records []driver.Record, err error) {
	m.change(name, func(entries []*memoryEntry) (after, look []*memoryEntry) {
		for i, rec := range recordsOf(entries) {
			e := entries[i]
			if token == 0 || e.token <= token && token < e.token+int64(max(e.Tokens, 1)) {
				records, look = append(records, rec), append(look, e)
			}
		}
		return slices.DeleteFunc(entries, func(e *memoryEntry) bool { return slices.Contains(look, e) }), look
	})
	return records, nil
}

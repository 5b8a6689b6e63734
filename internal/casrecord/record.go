package casrecord

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// A record is the content of the object of a name.
type record struct {
	Format  int     `json:"format"`
	Name    string  `json:"name"`
	Writes  int64   `json:"writes"`  // how often the record was written, so that no content occurs twice
	Last    int64   `json:"last"`    // the greatest token that was made
	Entries []entry `json:"entries"` // in the order of their tokens
}

// format is that of records. A store refuses any other.
const format = 1

// An entry is a hold, a place, or a keep.
type entry struct {
	Owner    string            `json:"owner"`
	Holder   string            `json:"holder"`
	Token    int64             `json:"token"` // the first of the block
	Tokens   int               `json:"tokens"`
	Limit    int               `json:"limit"`
	Since    int64             `json:"since"` // by the clock of the holder, in µs since 1970; for people
	Lasts    time.Duration     `json:"lasts"` // in ns, from the sight of Renewals on
	Renewals int64             `json:"renewals"`
	Kept     bool              `json:"kept,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// A sighting is what a store has seen of a name.
type sighting struct {
	turn chan struct{} // has an element while a call is at work on the name, to which the rest belongs

	known   bool // record and version are those of the object, as far as this store has seen
	record  record
	version string
	ends    map[int64]end // by token
}

// An end is when an entry ends, unless it is renewed again.
type end struct {
	renewals int64
	at       time.Duration // by the clock of the store
}

// see notes the record that the object has at the latest since now.
func (s *sighting) see(rec record, version string, now time.Duration) {
	ends := make(map[int64]end, len(rec.Entries))
	for _, e := range rec.Entries {
		seen, known := s.ends[e.Token]
		if !known || seen.renewals != e.Renewals {
			seen = end{e.Renewals, now + e.Lasts}
		}
		ends[e.Token] = seen
	}
	s.known, s.record, s.version, s.ends = true, rec, version, ends
}

// A queue is that of a name, with ends by the clock of the store.
type queue struct {
	lockqueue.Queue[data]
	counter lockqueue.Counter
	urgent  bool // it is of a hold or a release: written even if nothing changes, and in front of places
}

// data is what else belongs to an entry.
type data struct {
	entry
	until time.Duration // the end that was seen; 0 for a new entry
}

// queue returns the queue as it was seen, for the use of one verb.
func (s *sighting) queue() *queue {
	entries := make([]lockqueue.Entry[data], len(s.record.Entries))
	for i, e := range s.record.Entries {
		until := s.ends[e.Token].at
		entries[i] = lockqueue.Entry[data]{
			Owner: e.Owner, Token: e.Token, Tokens: e.Tokens, Limit: e.Limit, Until: until, Kept: e.Kept,
			Data: data{e, until},
		}
	}
	q := &queue{counter: lockqueue.Counter{Last: s.record.Last}}
	q.Restore(entries)
	return q
}

// renew prolongs an entry. It is written also if its end stays as it is for this store: another one
// may have seen the entry sooner, and expect an earlier end.
func (q *queue) renew(req driver.RenewRequest, now time.Duration) driver.Entry {
	own, _ := q.Renew(req.Owner, req.Token, req.TTL, now)
	q.urgent = q.urgent || own.State == driver.Held
	for _, e := range q.Entries() {
		if e.Token == own.Token {
			e.Data.until = 0
		}
	}
	return own
}

// record returns the record of the queue, and whether it differs from the one before.
func (q *queue) record(before record, now time.Duration) (rec record, changed bool) {
	rec = record{Format: format, Name: before.Name, Writes: before.Writes + 1, Last: q.counter.Last}
	changed = q.urgent || q.Len() != len(before.Entries)
	for _, e := range q.Entries() {
		next := e.Data.entry
		if e.Until != e.Data.until || e.Kept != next.Kept {
			next.Owner, next.Token, next.Tokens, next.Limit, next.Kept = e.Owner, e.Token, e.Tokens, e.Limit, e.Kept
			next.Lasts, next.Renewals = e.Until-now, next.Renewals+1
			changed = true
		}
		rec.Entries = append(rec.Entries, next)
	}
	return rec, changed
}

// describe describes a hold or keep, without its owner, as clients may see it.
func (q *queue) describe(name string, e *lockqueue.Entry[data], now time.Duration) driver.Record {
	rec := driver.Record{
		Name: name, Token: e.Token, Since: time.UnixMicro(e.Data.Since), Remaining: e.Until - now,
		Kept: e.Kept, Waiting: q.Waiting(),
	}
	if e.Limit > 1 {
		rec.Limit = e.Limit
	}
	if !e.Kept {
		rec.Holder, rec.Metadata = e.Data.Holder, e.Data.Metadata
	}
	return rec
}

// decode returns the record in the object of a name. One that no store has written is ErrCorrupt.
func decode(name string, value []byte) (rec record, err error) {
	if value == nil {
		return record{Format: format, Name: name}, nil
	}
	err = json.Unmarshal(value, &rec)
	valid := err == nil && rec.Name == name && rec.Writes >= 1 && rec.Last <= driver.MaxToken
	last := int64(0)
	for _, e := range rec.Entries {
		valid = valid && e.Owner != "" && e.Token > last && e.Tokens >= 1 && e.Tokens <= driver.MaxTokens &&
			e.Limit >= 1 && e.Limit <= driver.Shared && e.Lasts > 0 && e.Lasts <= driver.MaxTTL
		last = e.Token + int64(e.Tokens) - 1
	}
	switch {
	case rec.Format > format:
		err = fmt.Errorf("has the format %d, of a later version of Holdfast", rec.Format)
	case !valid || rec.Last < last || rec.Format < format:
		err = errors.New("is not a record of this name")
	default:
		return rec, nil
	}
	return rec, fmt.Errorf("%w: the object of %q %w", driver.ErrCorrupt, name, err)
}

package s3store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// A record is the content of the object of a name. That of a free name stays, for Last.
type record struct {
	Format  int
	Name    string
	Writes  int64 // how often the record was written: no content, and so no ETag, occurs twice
	Last    int64 // the greatest token that was made
	Entries []entry
}

// format is that of records. A store refuses any other.
const format = 2

// An entry is a hold, a place or a keep. In a record its Until is how long it lasts from the sight
// of its Renewals on. Its Since is by the clock of its client, for people.
type entry = lockqueue.Entry[data]

type data struct {
	Holder   string
	Metadata map[string]string `json:",omitempty"`
	Renewals int64

	lasts time.Duration // the Until in the record; 0 for what lasts anew from the next write on
}

// A sighting is what a store has seen of a name.
type sighting struct {
	turn chan struct{} // has an element while a call is at work on the name, to which the rest belongs

	known  bool   // record and tag are those of the object, as far as this store has seen
	record record // with ends by the clock of the store
	tag    string
}

// see notes the record that the object has at the latest since now.
func (s *sighting) see(rec record, tag string, now time.Duration) {
	for i := range rec.Entries {
		e := &rec.Entries[i]
		e.Data.lasts, e.Until = e.Until, now+e.Until
		for _, old := range s.record.Entries {
			if old.Token == e.Token && old.Data.Renewals == e.Data.Renewals {
				e.Until = old.Until
			}
		}
	}
	s.known, s.record, s.tag = true, rec, tag
}

// A queue is that of a name for one verb, with ends by the clock of the store.
type queue struct {
	lockqueue.Queue[data]
	counter lockqueue.Counter
	looks   bool // nothing is written
	changed bool // it is to be written, whatever its entries are
	urgent  bool // it is written in front of places: it is of a hold, or a release
}

// anew makes the entry of an owner last from the next write on.
func (q *queue) anew(owner string, ok bool) {
	for _, e := range q.Entries() {
		if ok && e.Owner == owner {
			e.Data.lasts = 0
		}
	}
}

// record returns the record of the queue, and whether it is to be written.
func (q *queue) record(before record, now time.Duration) (rec record, changed bool) {
	rec = record{Format: format, Name: before.Name, Writes: before.Writes + 1, Last: q.counter.Last}
	changed = q.changed || q.Len() != len(before.Entries)
	for _, e := range q.Entries() {
		next := *e
		if next.Until = e.Data.lasts; next.Until == 0 {
			next.Until, changed = e.Until-now, true
			next.Data.Renewals++
		}
		rec.Entries = append(rec.Entries, next)
	}
	return rec, changed && !q.looks
}

// describe describes a hold or keep as clients may see it.
func (q *queue) describe(name string, e *entry, now time.Duration) driver.Record {
	rec := driver.Record{
		Name: name, Token: e.Token, Since: time.Unix(0, int64(e.Since)), Remaining: e.Until - now,
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

// parse returns the record in the object of a name. One that no store has written is ErrCorrupt.
func parse(name string, value []byte) (rec record, err error) {
	if value == nil {
		return record{Name: name}, nil
	}
	valid := json.Unmarshal(value, &rec) == nil && rec.Format == format && rec.Name == name && rec.Writes >= 1
	last := int64(0)
	for _, e := range rec.Entries {
		valid = valid && e.Owner != "" && e.Token > last && e.Tokens >= 1 && e.Tokens <= driver.MaxTokens &&
			e.Limit >= 1 && e.Limit <= driver.Shared && e.Until > 0 && e.Until <= driver.MaxTTL
		last = e.Token + int64(e.Tokens) - 1
	}
	if !valid || rec.Last < last || rec.Last > driver.MaxToken {
		return rec, fmt.Errorf("%w: the object of %q is not a record of this name, or of another version of Holdfast",
			driver.ErrCorrupt, name)
	}
	return rec, nil
}

package memstore

import (
	"maps"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// A lockTable is the data behind one or more Stores.
type lockTable struct {
	created    time.Time
	grain      time.Duration
	openStores int // of a named table; guarded by namedTables

	mu    sync.Mutex
	names map[string]*queue // some are free; see add
	most  int               // the number of names at which those that are free are removed
	none  queue             // of a name that is not among them

	// counter is a clock in µs since 1970 that never falls, and rises with each entry. A floor does
	// not raise it: that of one name changes nothing for others.
	counter int64
}

// A queue is the state of a name. Times are since lockTable.created, on the monotonic clock.
type queue struct {
	lockqueue.Queue[holderData]
	counter lockqueue.Counter
}

type entry = lockqueue.Entry[holderData]

// holderData is what the table keeps with an entry.
type holderData struct {
	store        *Store // gets the notices
	name, holder string
	metadata     map[string]string
}

func newLockTable(grain time.Duration) *lockTable {
	return &lockTable{created: time.Now(), grain: grain, names: map[string]*queue{}}
}

// add adds a name. When there are twice as many as were left the last time, it removes those that
// are free and whose tokens the counter has passed, and returns the holds that it finds.
func (t *lockTable) add(name string, now time.Duration) (q *queue, told []entry) {
	if len(t.names) >= t.most {
		maps.DeleteFunc(t.names, func(_ string, q *queue) bool {
			told = append(told, q.Settle(now)...)
			return q.Len() == 0 && q.counter.Last <= t.counter
		})
		t.most = max(2*len(t.names), 64)
	}
	q = &queue{}
	q.Grain = t.grain
	t.names[name] = q
	return q, told
}

// record describes one hold or keep, without its owner, as clients may see it.
func (t *lockTable) record(h *entry, waiting int, now time.Duration) driver.Record {
	rec := driver.Record{
		Name:      h.Data.name,
		Holder:    h.Data.holder,
		Token:     h.Token,
		Since:     t.created.Add(h.Since).Round(0),
		Remaining: h.Until - now,
		Kept:      h.Kept,
		Limit:     h.Limit,
		Waiting:   waiting,
		Metadata:  h.Data.metadata,
	}
	if h.Kept {
		rec.Holder, rec.Metadata = "", nil
	}
	return rec
}

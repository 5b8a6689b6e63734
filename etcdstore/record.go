package etcdstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

// Below the prefix there are these keys:
//
//	lock/NAME\x00SLOT  an entry: its record
//	base               what is added to create revisions
//
// The entries of a name are in the order of their create revisions. Slots are used again: a server
// goes through all keys that a name has had since the last compaction.

// hashOf returns what the store keeps of an owner, so that no secret is in etcd.
func hashOf(owner string) string {
	hash := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(hash[:16])
}

// A record is the value of the key of an entry, in JSON.
type record struct {
	Base     int64             `json:"base"`  // The token is this and the create revision.
	Owner    string            `json:"owner"` // see hashOf
	Holder   string            `json:"holder,omitempty"`
	Since    int64             `json:"since"` // milliseconds since 1970, by the clock of the client
	Limit    int               `json:"limit,omitempty"`
	Kept     bool              `json:"kept,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`

	name, key, value  string
	created, modified int64 // revisions
	lease             clientv3.LeaseID
}

func (r *record) token() int64 { return r.Base + r.created }

// isUnchanged returns the conditions that the key is as it was read. Its revision may be that of
// another entry after a loss of data.
func (r *record) isUnchanged() []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(r.key), "=", r.modified),
		clientv3.Compare(clientv3.Value(r.key), "=", r.value),
	}
}

// public returns the Record of a hold without the time that is left.
func (r *record) public(waiting int) driver.Record {
	return driver.Record{
		Name: r.name, Holder: r.Holder, Token: r.token(), Since: time.UnixMilli(min(max(r.Since, 0), 1<<47)),
		Kept: r.Kept, Limit: r.Limit, Waiting: waiting, Metadata: r.Metadata,
	}
}

// A queue has the entries of a name in their order, as of a revision. The zero queue has none.
type queue struct {
	records  []*record
	revision int64
	own      *record // of the owner for whom it was read, or nil
}

// decodeQueue returns the queue of a name for an owner, by its keys as of a revision.
func (s *Store) decodeQueue(kvs []*mvccpb.KeyValue, revision int64, owner string) (queue, error) {
	q, hash := queue{revision: revision}, hashOf(owner)
	for _, kv := range kvs {
		name, _, ok := strings.Cut(strings.TrimPrefix(string(kv.Key), s.lockKeys), "\x00")
		r := &record{
			name: name, key: string(kv.Key), value: string(kv.Value),
			created: kv.CreateRevision, modified: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease),
		}
		err := json.Unmarshal(kv.Value, r)
		text := fmt.Sprint(name, r.Holder, r.Metadata)
		if err != nil || !ok || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) ||
			max(len(name), len(r.Holder)) > driver.MaxName || r.Limit < 0 || r.Base <= 0 || r.token() <= 0 || r.token() > driver.MaxToken {
			return queue{revision: revision}, fmt.Errorf("%w: key %q", driver.ErrCorrupt, kv.Key)
		}
		if q.records = append(q.records, r); r.Owner == hash {
			q.own = r
		}
	}
	slices.SortFunc(q.records, func(a, b *record) int { return cmp.Compare(a.created, b.created) })
	return q, nil
}

// look reads what entries are by now, maxOps of them at most, and notes it. A queue that it returns
// ends with the entry, which is its own. There is no own if the entry has ended, though the owner may
// have another one, through another Store.
func (s *Store) look(ctx context.Context, entries ...*entry) ([]queue, error) {
	queues, known, ops := make([]queue, len(entries)), make([]*record, len(entries)), make([]clientv3.Op, len(entries))
	s.mu.Lock()
	for i, e := range entries {
		key, opts := s.lockKeys+e.name+"\x00", []clientv3.OpOption{clientv3.WithPrefix()}
		if known[i] = e.record; e.held { // It stays a hold.
			key, opts = e.record.key, nil
		} else if e.record != nil {
			opts = append(opts, clientv3.WithMaxCreateRev(e.record.created))
			if e.record.Limit <= 1 { // With one entry before it, it waits. With a second, watch knows that there are others.
				opts = append(opts, clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend), clientv3.WithLimit(3))
			}
		}
		ops[i] = clientv3.OpGet(key, opts...)
	}
	s.mu.Unlock()
	txn, err := s.do(ctx, true, clientv3.OpTxn(nil, ops, nil))
	for i := 0; i < len(entries) && err == nil; i++ {
		kvs := txn.Responses[i].GetResponseRange().Kvs
		queues[i], err = s.decodeQueue(kvs, txn.Header.Revision, entries[i].owner)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range entries {
		q := &queues[i]
		if known[i] != nil && q.revision < known[i].modified {
			clear(s.leases) // The cluster has lost data: its leases may have entries again that nobody wants.
		}
		if q.own != nil && e.record != nil && q.own.token() != e.record.token() {
			q.own = nil
		} else if q.own != nil {
			q.records = q.records[:slices.Index(q.records, q.own)+1]
			e.record, e.held = q.own, q.waiting() == 0 && !q.own.Kept
		}
	}
	return queues, nil
}

// holds returns the entries that hold, oldest first.
func (q *queue) holds() []*record {
	return q.records[:lockqueue.Holds(len(q.records), func(i int) int { return max(q.records[i].Limit, 1) })]
}

// waiting returns how many places there are.
func (q *queue) waiting() int { return len(q.records) - len(q.holds()) }

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) (records []driver.Record, err error) {
	for rec, err := range s.List(ctx, name+"\x00") {
		if err != nil {
			return nil, err
		}
		records = append(records, rec)
	}
	return records, nil
}

// List implements [driver.Store]. It reads all entries at one revision, before it yields any. The
// time that is left of each hold is that of its lease, which is read once.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		get := clientv3.OpGet(s.lockKeys+prefix, clientv3.WithPrefix())
		resp, err := s.do(ctx, true, clientv3.OpTxn(nil, []clientv3.Op{get}, nil))
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		byName := map[string][]*mvccpb.KeyValue{}
		for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
			name, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), s.lockKeys), "\x00")
			byName[name] = append(byName[name], kv)
		}
		left := map[clientv3.LeaseID]time.Duration{}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			q, err := s.decodeQueue(byName[name], 0, "")
			if err != nil && !yield(driver.Record{}, err) {
				return
			}
			for _, r := range q.holds() {
				rec, id := r.public(q.waiting()), r.lease
				if left[id] == 0 {
					d, err := s.lookAtLease(ctx, id)
					if err != nil {
						yield(driver.Record{}, err)
						return
					}
					left[id] = cmp.Or(max(d, 0), time.Second/2) // The server rounds down.
				}
				if rec.Remaining = left[id]; !yield(rec, nil) {
					return
				}
			}
		}
	}
}

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
// Entries are in the order of their create revisions. Slots are random, for many may come at once,
// and few, since a server goes through all that a name has had since the last compaction.

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
	own      *record // the last one, of the owner for whom it was read, or nil
}

// decodeQueue returns the queue of a name, by its keys as of a revision.
func (s *Store) decodeQueue(kvs []*mvccpb.KeyValue, revision int64) (queue, error) {
	q := queue{revision: revision}
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
		q.records = append(q.records, r)
	}
	slices.SortFunc(q.records, func(a, b *record) int { return cmp.Compare(a.created, b.created) })
	return q, nil
}

// look reads what entries are by now, maxOps of them at most, and notes it. The queue of an entry
// ends with it. There is no own if it has ended, though the owner may have another one by now.
func (s *Store) look(ctx context.Context, entries ...*entry) ([]queue, error) {
	queues, at := make([]queue, len(entries)), make([]int, len(entries))
	var ops []clientv3.Op
	whole, latest := map[string]int{}, int64(0)
	s.mu.Lock()
	for i, e := range entries {
		key, opts := s.lockKeys+e.name+"\x00", []clientv3.OpOption{clientv3.WithPrefix()}
		at[i] = len(ops)
		if e.record != nil {
			latest, opts = max(latest, e.record.modified), append(opts, clientv3.WithMaxCreateRev(e.record.created))
		}
		if e.held { // It stays a hold.
			key, opts = e.record.key, nil
		} else if e.record != nil && e.record.Limit <= 1 { // It waits for one before it. Whether there are more, watch asks.
			opts = append(opts, clientv3.WithLimit(3), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
		} else if j, ok := whole[e.name]; ok { // For several, the whole queue is read once.
			at[i], ops[j] = j, clientv3.OpGet(key, clientv3.WithPrefix())
			continue
		} else {
			whole[e.name] = at[i]
		}
		ops = append(ops, clientv3.OpGet(key, opts...))
	}
	s.mu.Unlock()
	txn, err := s.do(ctx, true, clientv3.OpTxn(nil, ops, nil))
	read := make([]queue, len(ops))
	for i := 0; i < len(ops) && err == nil; i++ {
		read[i], err = s.decodeQueue(txn.Responses[i].GetResponseRange().Kvs, txn.Header.Revision)
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if txn.Header.Revision < latest {
		clear(s.leases) // The cluster has lost data: its leases may have entries again that nobody wants.
	}
	for i, e := range entries {
		q, hash := read[at[i]], hashOf(e.owner)
		j := slices.IndexFunc(q.records, func(r *record) bool {
			return r.Owner == hash && (e.record == nil || r.token() == e.record.token())
		})
		if j >= 0 {
			q.own, q.records = q.records[j], slices.Clone(q.records[:j+1])
			e.record, e.held = q.own, q.waiting() == 0 && !q.own.Kept
		}
		queues[i] = q
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
			q, err := s.decodeQueue(byName[name], 0)
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

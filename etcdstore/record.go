package etcdstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
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
)

// Below the prefix there are these keys:
//
//	lock/NAME\x00SLOT  an entry: its record
//	base               what is added to create revisions
//
// The entries of a name are in the order of their create revisions. So what ends an entry admits
// the next in the same revision. Slots are used again: a server goes through all keys that a name
// has had since the last compaction.

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

	name string
	kv   *mvccpb.KeyValue
}

func (r *record) key() string  { return string(r.kv.Key) }
func (r *record) token() int64 { return r.Base + r.kv.CreateRevision }

// public returns the Record of a hold without the time that is left.
func (r *record) public(waiting int) driver.Record {
	return driver.Record{
		Name: r.name, Holder: r.Holder, Token: r.token(), Since: time.UnixMilli(min(max(r.Since, 0), 1<<47)),
		Kept: r.Kept, Limit: r.Limit, Waiting: waiting, Metadata: r.Metadata,
	}
}

// A queue has the entries of a name in their order, as of a revision.
// The zero queue is that of a free name before any revision.
type queue struct {
	records  []*record
	revision int64
}

// inOrder reads what begins with a key in the order of queues.
var inOrder = []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)}

func (s *Store) decodeQueue(kvs []*mvccpb.KeyValue, revision int64) (q queue, err error) {
	foreign := func(text string) bool {
		return len(text) > driver.MaxName || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl)
	}
	q.revision = revision
	for _, kv := range kvs {
		name, _, ok := strings.Cut(strings.TrimPrefix(string(kv.Key), s.lockKeys), "\x00")
		r := &record{name: name, kv: kv}
		if err := json.Unmarshal(kv.Value, r); err != nil || !ok || foreign(name) || foreign(r.Holder) ||
			r.Base <= 0 || r.token() <= 0 || r.token() > driver.MaxToken {
			return q, fmt.Errorf("%w: key %q", driver.ErrCorrupt, kv.Key)
		}
		q.records = append(q.records, r)
	}
	return q, nil
}

// queueOp reads the queue of a name.
func (s *Store) queueOp(name string) clientv3.Op {
	return clientv3.OpGet(s.lockKeys+name+"\x00", inOrder...)
}

func (s *Store) readQueue(ctx context.Context, name string) (queue, error) {
	resp, err := s.read(ctx, s.queueOp(name))
	if err != nil {
		return queue{}, err
	}
	return s.decodeQueue(resp.Responses[0].GetResponseRange().Kvs, resp.Header.Revision)
}

// index returns the index of the entry of an owner, or -1.
func (q *queue) index(owner string) int {
	hash := hashOf(owner)
	return slices.IndexFunc(q.records, func(r *record) bool { return r.Owner == hash })
}

// holds returns the longest prefix of the entries whose length is within every Limit in it.
func (q *queue) holds() []*record {
	for i, r := range q.records {
		if !admits(q.records[:i], r.Limit) {
			return q.records[:i]
		}
	}
	return q.records
}

// waiting returns how many places there are.
func (q *queue) waiting() int { return len(q.records) - len(q.holds()) }

// admits reports whether an entry with a limit holds behind others.
func admits(ahead []*record, limit int) bool {
	n := len(ahead) + 1
	for _, r := range ahead {
		limit = min(max(limit, 1), max(r.Limit, 1))
	}
	return n <= max(limit, 1)
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	q, err := s.readQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.publish(ctx, q, map[int64]time.Duration{})
}

// List implements [driver.Store]. It reads all entries at one revision, before it yields any.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		resp, err := s.read(ctx, clientv3.OpGet(s.lockKeys+prefix, inOrder...))
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		byName := map[string][]*mvccpb.KeyValue{}
		for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
			name, _, _ := strings.Cut(string(kv.Key), "\x00")
			byName[name] = append(byName[name], kv)
		}
		left := map[int64]time.Duration{}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			var records []driver.Record
			q, err := s.decodeQueue(byName[name], 0)
			if err == nil {
				records, err = s.publish(ctx, q, left)
			}
			for _, rec := range records {
				if !yield(rec, nil) {
					return
				}
			}
			if err != nil && (!yield(driver.Record{}, err) || !errors.Is(err, driver.ErrCorrupt)) {
				return
			}
		}
	}
}

// publish returns the Records of the holds and keeps of a name. The time that is left of each is
// that of its lease, which is read once.
func (s *Store) publish(ctx context.Context, q queue, left map[int64]time.Duration) (records []driver.Record, err error) {
	for _, r := range q.holds() {
		rec, id := r.public(q.waiting()), r.kv.Lease
		if left[id] == 0 {
			d, err := s.lookAtLease(ctx, clientv3.LeaseID(id))
			if err != nil {
				return nil, err
			}
			left[id] = cmp.Or(max(d, 0), time.Second/2) // the server rounds down
		}
		rec.Remaining = left[id]
		records = append(records, rec)
	}
	return records, nil
}

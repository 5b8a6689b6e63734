package etcdstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	if err := s.check(ctx, name); err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	q, err := s.readQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.publish(ctx, q.holds(), q.waiting(), nil)
}

// pageSize is how many entries of a listing are read in one request at first.
const pageSize = 500

// List implements [driver.Store]. It reads all entries of a name at one revision.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		if err := s.check(ctx, "all"); err != nil {
			yield(driver.Record{}, err)
			return
		}
		begin, limit := s.prefix+"lock/"+prefix, int64(pageSize)
		end, left := clientv3.GetPrefixRangeEnd(begin), map[int64]time.Duration{}
		for begin != "" {
			kvs, more, err := s.readPage(ctx, begin, end, limit)
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			begin = ""
			for len(kvs) > 0 {
				name := nameOf(kvs[0])
				n := slices.IndexFunc(kvs, func(kv *mvccpb.KeyValue) bool { return !bytes.Equal(nameOf(kv), name) })
				if n < 0 && more { // There may be more of this name: the next page begins with it.
					begin = string(name)
					if len(kvs) == int(limit) {
						limit *= 2
					}
					break
				}
				if n < 0 {
					n = len(kvs)
				}
				if !s.yieldName(ctx, kvs[:n], left, yield) {
					return
				}
				kvs = kvs[n:]
			}
		}
	}
}

func (s *Store) readPage(ctx context.Context, begin, end string, limit int64) (kvs []*mvccpb.KeyValue, more bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	resp, err := s.do(ctx, nil, []clientv3.Op{clientv3.OpGet(begin, clientv3.WithRange(end), clientv3.WithLimit(limit))}, nil)
	if err != nil {
		return nil, false, err
	}
	page := resp.Responses[0].GetResponseRange()
	return page.Kvs, page.More, nil
}

// nameOf returns how the keys of all entries of the same name begin.
func nameOf(kv *mvccpb.KeyValue) []byte {
	if i := bytes.IndexByte(kv.Key, 0); i >= 0 {
		return kv.Key[:i+1]
	}
	return kv.Key
}

// yieldName yields the holds among the entries of a name, and reports whether the listing goes on.
func (s *Store) yieldName(
	ctx context.Context, kvs []*mvccpb.KeyValue, left map[int64]time.Duration, yield func(driver.Record, error) bool,
) bool {
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	q, err := s.decodeQueue(kvs, 0)
	var records []driver.Record
	if err == nil {
		ctx, cancel := bounded(ctx)
		defer cancel()
		records, err = s.publish(ctx, q.holds(), q.waiting(), left)
	}
	if err != nil {
		return yield(driver.Record{}, err) && errors.Is(err, driver.ErrCorrupt)
	}
	for _, rec := range records {
		if !yield(rec, nil) {
			return false
		}
	}
	return true
}

package etcdstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	ctx, cancel, err := s.begin(ctx, name)
	if err != nil {
		return nil, err
	}
	defer cancel()
	q, err := s.readQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.publish(ctx, q.holds(), q.waiting(), nil)
}

// pageSize is how many entries of a listing are read in one request.
const pageSize = 500

// List implements [driver.Store]. It reads all entries at one revision.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		var revision int64
		var kvs []*mvccpb.KeyValue
		begin, left := s.prefix+"lock/"+prefix, map[int64]time.Duration{}
		end := clientv3.GetPrefixRangeEnd(begin)
		for more := true; more; {
			page, pageRevision, err := s.readPage(ctx, begin, end, revision)
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			kvs, more, revision = append(kvs, page.Kvs...), page.More, cmp.Or(revision, pageRevision)
			for len(kvs) > 0 {
				n := slices.IndexFunc(kvs, func(kv *mvccpb.KeyValue) bool { return !bytes.Equal(nameOf(kv), nameOf(kvs[0])) })
				if n < 0 && more { // There may be more of this name.
					begin = string(kvs[len(kvs)-1].Key) + "\x00"
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

func (s *Store) readPage(ctx context.Context, begin, end string, revision int64) (*pb.RangeResponse, int64, error) {
	ctx, cancel, err := s.begin(ctx, "all")
	if err != nil {
		return nil, 0, err
	}
	defer cancel()
	responses, last, err := s.do(ctx, clientv3.OpGet(begin, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision)))
	if err != nil {
		return nil, 0, err
	}
	return responses[0].GetResponseRange(), last, nil
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
		ctx, cancel := context.WithTimeout(ctx, requestBound)
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

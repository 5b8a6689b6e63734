package etcdstore

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"slices"

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
	return s.publish(ctx, q)
}

// pageSize is how many entries of a listing are read in one request.
const pageSize = 500

// List implements [driver.Store]. It reads all entries at one revision, before it yields any.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		kvs, err := s.readEntries(ctx, prefix)
		var queues []queue
		for len(kvs) > 0 {
			n := slices.IndexFunc(kvs, func(kv *mvccpb.KeyValue) bool { return !bytes.Equal(nameOf(kv), nameOf(kvs[0])) })
			if n < 0 {
				n = len(kvs)
			}
			slices.SortFunc(kvs[:n], func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
			q, corrupt := s.decodeQueue(kvs[:n], 0)
			if corrupt == nil {
				queues = append(queues, q)
			} else if !yield(driver.Record{}, corrupt) {
				return
			}
			kvs = kvs[n:]
		}
		var records []driver.Record
		if err == nil {
			records, err = s.publish(ctx, queues...)
		}
		for _, rec := range records {
			if !yield(rec, nil) {
				return
			}
		}
		if err != nil {
			yield(driver.Record{}, err)
		}
	}
}

// readEntries reads the keys of all entries of the names that begin with prefix.
func (s *Store) readEntries(ctx context.Context, prefix string) (kvs []*mvccpb.KeyValue, err error) {
	var revision int64
	begin := s.prefix + "lock/" + prefix
	end := clientv3.GetPrefixRangeEnd(begin)
	for more := true; more; {
		pageCtx, cancel, err := s.begin(ctx, "all")
		if err != nil {
			return nil, err
		}
		responses, last, err := s.do(pageCtx, clientv3.OpGet(begin, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision)))
		if cancel(); err != nil {
			return nil, err
		}
		page := responses[0].GetResponseRange()
		kvs, more, revision = append(kvs, page.Kvs...), page.More, cmp.Or(revision, last)
		if more {
			begin = string(kvs[len(kvs)-1].Key) + "\x00"
		}
	}
	return kvs, nil
}

// nameOf returns how the keys of all entries of the same name begin.
func nameOf(kv *mvccpb.KeyValue) []byte {
	if i := bytes.IndexByte(kv.Key, 0); i >= 0 {
		return kv.Key[:i+1]
	}
	return kv.Key
}

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

// List implements [driver.Store]. It reads all entries at one revision, before it yields any.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		var queues []queue
		kvs, err := s.readEntries(ctx, prefix)
		for len(kvs) > 0 {
			n := 1
			for n < len(kvs) && bytes.Equal(nameOf(kvs[n]), nameOf(kvs[0])) {
				n++
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
func (s *Store) readEntries(ctx context.Context, prefix string) ([]*mvccpb.KeyValue, error) {
	ctx, cancel, err := s.begin(ctx, "all")
	if err != nil {
		return nil, err
	}
	defer cancel()
	c := &call{op: clientv3.OpGet(s.prefix+"lock/"+prefix, clientv3.WithPrefix())}
	if err = cmp.Or(s.sendAll(ctx, c), c.err); err != nil {
		return nil, err
	}
	return c.resp.GetResponseRange().Kvs, nil
}

// nameOf returns how the keys of all entries of the same name begin.
func nameOf(kv *mvccpb.KeyValue) []byte {
	return kv.Key[:bytes.IndexByte(kv.Key, 0)+1]
}

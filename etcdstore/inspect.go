package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/driver"
)

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
		resp, err := s.read(ctx, s.lockKeys+prefix, inOrder...)
		if err != nil {
			yield(driver.Record{}, err)
			return
		}
		byName := map[string][]*mvccpb.KeyValue{}
		for _, kv := range resp.Kvs {
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
			d, _, err := s.lookAtLease(ctx, clientv3.LeaseID(id), false)
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

// lookAtLease returns how long a lease lasts, in whole seconds, and its keys, as its leader knows
// them. A server shows the keys only to a user that may read them all.
func (s *Store) lookAtLease(ctx context.Context, id clientv3.LeaseID, keys bool) (left time.Duration, resp *pb.LeaseTimeToLiveResponse, err error) {
	err = s.send(ctx, true, func(ctx context.Context) (err error) {
		resp, err = s.leasing.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: int64(id), Keys: keys}, grpc.WaitForReady(true))
		return err
	})
	return time.Duration(min(resp.GetTTL(), int64(100*driver.MaxTTL/time.Second))) * time.Second, resp, err
}

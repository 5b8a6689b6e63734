//go:build unix

package etcdstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// A list goes on when what it reads is compacted, and has each name that is held throughout once.
func TestListDuringCompactions(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	s := openObserved(t, member)
	const n = 600 // with 1800 records, in four pages
	for i := range n / 30 {
		var ops []clientv3.Op
		for j := range 30 {
			for token := range 3 { // a hold and two places
				ops = append(ops, clientv3.OpPut(s.recKey(fmt.Sprintf("name%04d", 30*i+j), int64(token+1)), "{}"))
			}
		}
		if _, err := s.client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	var pages atomic.Int32
	compact := func(_ context.Context, req any, send func() error) error {
		if txn, ok := req.(*pb.TxnRequest); ok && strings.HasPrefix(string(txn.Success[0].GetRequestRange().GetKey()), s.prefix+"rec/") {
			if pages.Add(1) > 1 && txn.Success[0].GetRequestRange().Revision > 0 {
				if _, err := s.client.Put(t.Context(), "other key", ""); err != nil {
					t.Error(err)
				}
				member.Compact()
			}
		}
		return send()
	}
	s.onUnary.Store(&compact)
	var names []string
	for rec, err := range s.List(t.Context(), "name") {
		if err != nil {
			t.Fatalf("after %d names: %v", len(names), err)
		}
		if rec.Waiting != 2 {
			t.Errorf("%q: %d wait, want 2", rec.Name, rec.Waiting)
		}
		names = append(names, rec.Name)
	}
	if !slices.IsSorted(names) || len(slices.Compact(names)) != n {
		t.Errorf("%d names, want %d in order", len(names), n)
	}
	if pages.Load() < 7 {
		t.Errorf("%d pages, want 4, and 3 of them again", pages.Load())
	}
}

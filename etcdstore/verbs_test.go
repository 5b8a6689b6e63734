//go:build unix

package etcdstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// A name that the user may not read, and a server with small transactions, cost no other renewal.
func TestRenewalsThatTheServerRefuses(t *testing.T) {
	t.Parallel()
	s := openObserved(t, servers.StartEtcd(t, "--max-txn-ops", "64"))
	const n = 50
	reqs := renewals(t, s.Store, n, time.Hour)
	denied := s.ownKey(reqs[7].Name, reqs[7].Owner)
	deny := func(_ context.Context, req any, send func() error) error {
		if txn, ok := req.(*pb.TxnRequest); ok && slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool { return string(op.GetRequestRange().GetKey()) == denied }) {
			return rpctypes.ErrGRPCPermissionDenied
		}
		return send()
	}
	s.onUnary.Store(&deny)
	entries, err := s.Renew(t.Context(), reqs)
	if !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("Renew: %v, want ErrPermissionDenied", err)
	}
	for i, e := range entries {
		if want := map[bool]driver.State{true: driver.Unknown, false: driver.Held}[i == 7]; e.State != want {
			t.Errorf("renewal %d: %v, want %v", i, e.State, want)
		}
	}
}

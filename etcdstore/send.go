package etcdstore

import (
	"context"
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batch"
	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	requestBound = 3 * time.Second        // of a request without a deadline, and of one for many calls
	stuckAfter   = 250 * time.Millisecond // how long a request holds up others
	inFlight     = 4                      // requests for many calls
	maxOps       = 128                    // that a server allows in a transaction by default
)

// A call is an operation that is sent with others.
type call struct {
	name     string // of the lock
	op       clientv3.Op
	resp     *pb.ResponseOp
	revision int64
	err      error
}

func (s *Store) newCalls() batch.Queue[*call] {
	return batch.Queue[*call]{
		Send: s.sendCalls, Name: func(c *call) string { return c.name },
		InFlight: inFlight, Max: maxOps, Bound: requestBound, StuckAfter: stuckAfter, MinInline: time.Millisecond,
	}
}

// write has a transaction for a name sent with those of other goroutines. It is sent once, and
// again only if it was certainly not applied.
func (s *Store) write(ctx context.Context, name string, conditions []clientv3.Cmp, then, otherwise []clientv3.Op) (*pb.TxnResponse, int64, error) {
	c := &call{name: name, op: clientv3.OpTxn(conditions, then, otherwise)}
	err := s.calls.Do(ctx, c)
	switch {
	case errors.Is(err, batch.ErrNotSent):
		return nil, 0, driver.NotApplied(s.storeError(err))
	case err != nil:
		return nil, 0, s.storeError(err)
	}
	return c.resp.GetResponseTxn(), c.revision, c.err
}

// sendCalls sends calls in as few requests as possible. A server refuses one that changes a key
// twice, so calls for the same name follow each other.
func (s *Store) sendCalls(ctx context.Context, calls []*call) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.alive, cancel)()
	for len(calls) > 0 {
		var now, later []*call
		names := map[string]bool{}
		for _, c := range calls {
			if names[c.name] {
				later = append(later, c)
			} else {
				names[c.name] = true
				now = append(now, c)
			}
		}
		s.sendTogether(ctx, now)
		calls = later
	}
}

// sendTogether sends calls in one request, and divides them if the server refuses it: it does so
// because of one, or of their number. A lone transaction is sent as it is, since a server of 3.4
// checks neither rights nor space for one that is in another.
func (s *Store) sendTogether(ctx context.Context, calls []*call) {
	if first := calls[0]; len(calls) == 1 && first.op.IsTxn() {
		conditions, then, otherwise := first.op.Txn()
		resp, err := s.do(ctx, conditions, then, otherwise)
		if first.err = err; err == nil {
			first.revision = resp.Header.Revision
			first.resp = &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: (*pb.TxnResponse)(resp)}}
		}
		return
	}
	var ops []clientv3.Op
	for _, c := range calls {
		ops = append(ops, c.op)
	}
	resp, err := s.do(ctx, nil, ops, nil)
	if half := len(calls) / 2; half > 0 && isRefusal(err) {
		s.sendTogether(ctx, calls[:half])
		s.sendTogether(ctx, calls[half:])
		return
	}
	for i, c := range calls {
		if c.err = err; err == nil {
			c.resp, c.revision = resp.Responses[i], resp.Header.Revision
		}
	}
}

// bounded returns the context of requests: that of the caller if it has a deadline.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, requestBound)
}

// do sends a transaction. Reads are confirmed by a majority. They are repeated after most errors,
// and writes if a member has turned them away.
func (s *Store) do(ctx context.Context, conditions []clientv3.Cmp, then, otherwise []clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	isRead := true
	for _, op := range slices.Concat(then, otherwise) {
		isRead = isRead && op.IsGet()
	}
	err = s.send(ctx, isRead, func(ctx context.Context) error {
		r, err := s.client.Do(ctx, clientv3.OpTxn(conditions, then, otherwise))
		resp = r.Txn()
		return err
	})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.noteLeaseEnded()
	}
	return resp, err
}

// remaining reads how many whole seconds a lease lasts.
func (s *Store) remaining(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (resp *clientv3.LeaseTimeToLiveResponse, err error) {
	err = s.send(ctx, true, func(ctx context.Context) error {
		resp, err = s.client.TimeToLive(ctx, id, opts...)
		return err
	})
	return resp, err
}

// send makes a request, and makes it again at another member if one has turned it away. One that
// may be repeated is also made again after other errors, and has 1, 2, 4 s and so on, or a third of
// the time, since a member may not answer at all.
func (s *Store) send(ctx context.Context, repeatable bool, request func(ctx context.Context) error) error {
	ctx = clientv3.WithRequireLeader(ctx)
	for try := 0; ; try++ {
		tryCtx, cancel := ctx, func() {}
		if deadline, ok := ctx.Deadline(); ok && repeatable {
			tryCtx, cancel = context.WithTimeout(ctx, min(answerBound<<min(try, 5), time.Until(deadline)/time.Duration(max(3-try, 1))))
		}
		err := request(tryCtx)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, !isTurnedAway(err) && !(repeatable && mayPass(err)), try > 2*len(s.client.Endpoints()),
			retry.Sleep(ctx, retry.Backoff(try, 2*time.Millisecond, 100*time.Millisecond)) != nil:
			return s.storeError(err)
		}
	}
}

// isTurnedAway reports whether a member has refused a request because it has no leader or is a
// learner.
func isTurnedAway(err error) bool {
	desc := rpctypes.ErrorDesc(err)
	return desc == rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader) || desc == rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner)
}

// mayPass reports whether a request that has failed may succeed when it is repeated.
func mayPass(err error) bool {
	code := status.Code(err)
	return isTurnedAway(err) || errors.Is(err, context.DeadlineExceeded) ||
		code == codes.Unavailable || code == codes.DeadlineExceeded
}

// refusals are replies of a server that has not applied a request. ErrNoSpace is none: the server
// applies requests that use up the space, and those that come before the alarm is raised.
var refusals = []error{
	rpctypes.ErrLeaseNotFound, rpctypes.ErrKeyNotFound, rpctypes.ErrTooManyOps, rpctypes.ErrDuplicateKey, rpctypes.ErrRequestTooLarge,
	rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed,
	rpctypes.ErrRoleNotGranted, rpctypes.ErrPermissionNotGranted,
	rpctypes.ErrGRPCNotSupportedForLearner, rpctypes.ErrCorrupt,
}

func isRefusal(err error) bool {
	return slices.ContainsFunc(refusals, func(refusal error) bool {
		return errors.Is(err, refusal) || rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(refusal)
	})
}

// storeError returns the error of a request as package driver defines it.
func (s *Store) storeError(err error) error {
	is := func(target error) bool {
		return errors.Is(err, target) || rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(target)
	}
	switch {
	case err == nil:
		return nil
	case is(rpctypes.ErrTooManyRequests), is(rpctypes.ErrGRPCNoLeader):
		return &driver.RetryError{Err: err}
	case isRefusal(err):
		return driver.NotApplied(err)
	}
	return explain(err, s.unconnected)
}

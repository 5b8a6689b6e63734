package etcdstore

import (
	"context"
	"errors"
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
	answerBound  = time.Second            // of the first try of a request that may be repeated
	inFlight     = 4                      // requests for many calls
	maxOps       = 128                    // that a server allows in a transaction by default
)

// A call is a transaction for a name, or a read, which is sent with others of its kind: a write
// that hangs is not repeated, and must not use up the time of reads.
type call struct {
	name     string // of the lock, "" for a read
	op       clientv3.Op
	resp     *pb.ResponseOp
	revision int64
	err      error
}

func (s *Store) newCalls(areReads bool) batch.Queue[*call] {
	return batch.Queue[*call]{
		Send: func(ctx context.Context, calls []*call) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(s.alive, cancel)()
			s.sendCalls(ctx, calls, areReads)
		},
		Name:     func(c *call) string { return c.name },
		InFlight: inFlight, Max: maxOps, Bound: requestBound, StuckAfter: stuckAfter, MinInline: time.Millisecond,
	}
}

// write has a transaction for a name sent with those of other goroutines. It is sent once, and
// again only if it was certainly not applied.
func (s *Store) write(
	ctx context.Context, name string, conditions []clientv3.Cmp, then []clientv3.Op, otherwise ...clientv3.Op,
) (*pb.TxnResponse, int64, error) {
	c := &call{name: name, op: clientv3.OpTxn(conditions, then, otherwise)}
	if err := s.sendAll(ctx, c); err != nil {
		return nil, 0, err
	}
	return c.resp.GetResponseTxn(), c.revision, c.err
}

// sendAll has calls of one kind sent, with those of other goroutines.
func (s *Store) sendAll(ctx context.Context, calls ...*call) error {
	queue := &s.writes
	if calls[0].op.IsGet() {
		queue = &s.reads
	}
	err := queue.Do(ctx, calls...)
	if errors.Is(err, batch.ErrNotSent) {
		return driver.NotApplied(err)
	}
	return err
}

// sendCalls sends calls in few requests. Those for the same name follow each other: a server
// evaluates the conditions of all calls in a request before it applies the first. Reads may be
// repeated; a majority confirms them, too. A request that the server refuses is divided: it does so
// because of one call, or of their number.
func (s *Store) sendCalls(ctx context.Context, calls []*call, areReads bool) {
	n, names := 0, map[string]bool{}
	var ops []clientv3.Op
	for ; n < len(calls) && !names[calls[n].name]; n++ {
		names[calls[n].name] = !areReads
		ops = append(ops, calls[n].op)
	}
	request, isLone := clientv3.OpTxn(nil, ops, nil), n == 1 && !areReads
	if isLone { // A server of 3.4 checks neither rights nor space for one that is in another.
		request = ops[0]
	}
	var txn *clientv3.TxnResponse
	err := s.send(ctx, areReads, func(ctx context.Context) error {
		resp, err := s.client.Do(ctx, request)
		txn = resp.Txn()
		return err
	})
	if n > 1 && isRefusal(err) {
		s.sendCalls(ctx, calls[:n/2], areReads)
		s.sendCalls(ctx, calls[n/2:], areReads)
		return
	}
	for i, c := range calls[:n] {
		switch c.err = err; {
		case err != nil:
			continue
		case isLone:
			c.resp = &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: (*pb.TxnResponse)(txn)}}
		default:
			c.resp = txn.Responses[i]
		}
		c.revision = txn.Header.Revision
	}
	if n < len(calls) {
		s.sendCalls(ctx, calls[n:], areReads)
	}
}

// send makes a request, and makes it again at another member if one has turned it away. One that
// may be repeated is also made again after other errors, and has 1, 2, 4 s and so on, or a third of
// the time, since a member may not answer at all.
func (s *Store) send(ctx context.Context, repeatable bool, request func(ctx context.Context) error) error {
	ctx = clientv3.WithRequireLeader(ctx)
	for try := 0; ; try++ {
		tryCtx, cancel := context.WithCancel(ctx)
		if deadline, ok := ctx.Deadline(); ok && repeatable {
			tryCtx, cancel = context.WithTimeout(ctx, min(answerBound<<min(try, 5), time.Until(deadline)/time.Duration(max(3-try, 1))))
		}
		err := rpctypes.Error(request(tryCtx))
		cancel()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) { // A server that does not know one may have lost others.
			s.mu.Lock()
			clear(s.leases)
			s.mu.Unlock()
			s.notices.Send("", "", 0)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, !isTurnedAway(err) && !(repeatable && (codeOf(err) == codes.Unavailable || isLate(err))),
			try > 2*len(s.client.Endpoints()),
			retry.Sleep(ctx, retry.Backoff(try, 2*time.Millisecond, 100*time.Millisecond)) != nil:
			return storeError(err)
		}
	}
}

func codeOf(err error) codes.Code {
	if reply := (rpctypes.EtcdError{}); errors.As(err, &reply) {
		return reply.Code()
	}
	return status.Code(err)
}

func isLate(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || codeOf(err) == codes.DeadlineExceeded
}

// isTurnedAway reports whether a member has refused a request because it has no leader or is a
// learner.
func isTurnedAway(err error) bool {
	return errors.Is(err, rpctypes.ErrNoLeader) || rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner)
}

// isRefusal reports whether a server has not applied a request, by the code of its reply. That of
// ErrNoSpace is not among them: the server applies requests that use up the space, and those that
// come before the alarm is raised.
func isRefusal(err error) bool {
	switch codeOf(err) {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated, codes.DataLoss:
		return true
	}
	return false
}

// storeError returns the error of a request as package driver defines it.
func storeError(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrTooManyRequests), errors.Is(err, rpctypes.ErrNoLeader):
		return &driver.RetryError{Err: err}
	case isRefusal(err):
		return driver.NotApplied(err)
	}
	return explain(err)
}

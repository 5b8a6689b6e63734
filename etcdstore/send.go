package etcdstore

import (
	"context"
	"errors"
	"fmt"
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
	requestBound = 3 * time.Second  // of a request for many calls
	listBound    = 15 * time.Second // of a request without a deadline
	maxOps       = 128              // that a server allows in a transaction by default
	maxCalls     = maxOps - 4       // in a request: a call has 4 operations at most, which count
)

// A call is a transaction that may write. It is sent with others.
type call struct {
	name string // of the lock, or "" for what may overtake and be overtaken, and be repeated
	op   clientv3.Op
	resp *pb.TxnResponse
	err  error
}

// write has a transaction for a name sent with those of other goroutines. It is sent once, and
// again only if it was certainly not applied; without a name, it reads, and may be sent again.
func (s *Store) write(
	ctx context.Context, name string, conditions []clientv3.Cmp, then []clientv3.Op, otherwise ...clientv3.Op,
) (*pb.TxnResponse, error) {
	c, queue := &call{name: name, op: clientv3.OpTxn(conditions, then, otherwise)}, &s.writes
	if name == "" {
		queue = &s.reads
	}
	err := queue.Do(ctx, c)
	if errors.Is(err, batch.ErrNotSent) {
		return nil, driver.NotApplied(err)
	}
	if err != nil {
		return nil, err
	}
	return c.resp, c.err
}

// sendCalls sends calls in few requests. Those for the same name follow each other: a server
// evaluates the conditions of all calls in a request before it applies the first. A request that
// the server refuses is divided: it does so because of one call.
func (s *Store) sendCalls(ctx context.Context, calls []*call) {
	n, names, repeatable := 0, map[string]bool{}, calls[0].name == ""
	var ops []clientv3.Op
	for ; n < len(calls) && !names[calls[n].name]; n++ {
		names[calls[n].name] = !repeatable
		ops = append(ops, calls[n].op)
	}
	request := clientv3.OpTxn(nil, ops, nil)
	if n == 1 { // A server of 3.4 checks neither rights nor space for one that is in another.
		request = ops[0]
	}
	txn, err := s.do(ctx, repeatable, request)
	if n > 1 && isRefusal(err) {
		s.sendCalls(ctx, calls[:n/2])
		s.sendCalls(ctx, calls[n/2:])
		return
	}
	for i, c := range calls[:n] {
		if c.resp, c.err = txn, err; err == nil && n > 1 {
			c.resp = txn.Responses[i].GetResponseTxn()
			c.resp.Header = txn.Header
		}
	}
	if n < len(calls) {
		s.sendCalls(ctx, calls[n:])
	}
}

// do makes a request that is a transaction, also to read: the client repeats none itself. A
// majority confirms what it reads.
func (s *Store) do(ctx context.Context, repeatable bool, op clientv3.Op) (txn *pb.TxnResponse, err error) {
	if err = s.check(ctx); err != nil {
		return nil, err
	}
	err = s.send(ctx, repeatable, func(ctx context.Context) error {
		resp, err := s.client.Do(ctx, op)
		txn = (*pb.TxnResponse)(resp.Txn())
		return err
	})
	return txn, err
}

// send makes a request, and makes it again at another member if one has turned it away. One that
// may be repeated is also made again after other errors, and has a third of the time, since a
// member may not answer at all.
func (s *Store) send(ctx context.Context, repeatable bool, request func(ctx context.Context) error) error {
	ctx = clientv3.WithRequireLeader(ctx)
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(listBound)
	}
	for try := 0; ; try++ {
		left := time.Until(deadline)
		if repeatable {
			left /= time.Duration(max(3-try, 1))
		}
		tryCtx, cancel := context.WithTimeout(ctx, left)
		stop := context.AfterFunc(s.alive, cancel)
		err := rpctypes.Error(request(tryCtx))
		stop()
		cancel()
		if errors.Is(err, rpctypes.ErrLeaseNotFound) { // A server that does not know one may have lost others.
			s.mu.Lock()
			clear(s.leases)
			s.mu.Unlock()
			s.notices.Send("", "", 0)
		}
		code, isLearner := codeOf(err), rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner)
		again := isLearner || errors.Is(err, rpctypes.ErrNoLeader) ||
			repeatable && (code == codes.Unavailable || code == codes.DeadlineExceeded)
		if !again || try > 2*len(s.client.Endpoints()) ||
			retry.Sleep(ctx, retry.Backoff(try, 2*time.Millisecond, 100*time.Millisecond)) != nil {
			return storeError(err)
		}
	}
}

// codeOf returns the code of an error of the client, of gRPC or of a context.
func codeOf(err error) codes.Code {
	if reply := (rpctypes.EtcdError{}); errors.As(err, &reply) {
		return reply.Code()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return codes.DeadlineExceeded
	}
	return status.Code(err)
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
	case codeOf(err) == codes.DeadlineExceeded: // as gRPC, a member or the caller has noticed
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

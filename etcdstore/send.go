package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	requestBound = 3 * time.Second // of a request for many calls
	longest      = 9 * time.Second // of a request with its repetitions: "holdfast ls" waits 10 s
	maxOps       = 128             // that a server allows in a transaction by default
	maxCalls     = maxOps - 4      // in a request: a call has 4 operations at most, which count
)

// A call is a transaction for a name that may write. It is sent with others.
type call struct {
	name string
	op   clientv3.Op
	resp *pb.TxnResponse
	err  error
}

// write sends a transaction for a name together with those of other goroutines. It is sent again
// only if it was certainly not applied.
func (s *Store) write(
	ctx context.Context, name string, conditions []clientv3.Cmp, then []clientv3.Op, otherwise ...clientv3.Op,
) (*pb.TxnResponse, error) {
	c := &call{name: name, op: clientv3.OpTxn(conditions, then, otherwise)}
	if err := s.writes.Do(ctx, c); err != nil {
		return nil, err
	}
	return c.resp, c.err
}

// sendCalls sends calls in few requests. Those for one name are in several: a server evaluates the
// conditions of all calls in a request before it applies the first. A request that the server
// refuses is divided: it may do so because of one call.
func (s *Store) sendCalls(ctx context.Context, calls []*call) {
	n, names := len(calls), map[string]bool{}
	var ops []clientv3.Op
	for _, c := range calls {
		names[c.name] = true
		ops = append(ops, c.op)
	}
	request := clientv3.OpTxn(nil, ops, nil)
	if n == 1 { // A server of 3.4 checks neither rights nor space for one that is in another.
		request = ops[0]
	}
	var txn *pb.TxnResponse
	var err error
	if len(names) == n {
		txn, err = s.do(ctx, false, request)
	}
	if len(names) < n || n > 1 && isRefusal(err) {
		var group sync.WaitGroup
		group.Go(func() { s.sendCalls(ctx, calls[:n/2]) })
		s.sendCalls(ctx, calls[n/2:])
		group.Wait()
		return
	}
	for i, c := range calls {
		if c.resp, c.err = txn, err; err == nil && n > 1 {
			c.resp = txn.Responses[i].GetResponseTxn()
			c.resp.Header = txn.Header
		}
	}
}

// do makes a transaction, also to read. A majority confirms it, and the client repeats none.
func (s *Store) do(ctx context.Context, repeatable bool, op clientv3.Op) (txn *pb.TxnResponse, err error) {
	err = s.send(ctx, repeatable, func(ctx context.Context) error {
		resp, err := s.client.Do(ctx, op)
		txn = (*pb.TxnResponse)(resp.Txn())
		return err
	})
	return txn, err
}

// send makes a request, and makes it again, at another member, if one has turned it away. One that
// is repeatable is also made again if a member does not answer: each try has a third of the time.
func (s *Store) send(ctx context.Context, repeatable bool, request func(ctx context.Context) error) error {
	switch {
	case s.client == nil:
		return fmt.Errorf("%w: the etcd client is nil", driver.ErrInvalid)
	case s.alive.Err() != nil || s.client.Ctx().Err() != nil:
		return fmt.Errorf("%w: the store, or its etcd client", driver.ErrClosed)
	case ctx.Err() != nil:
		return driver.NotApplied(ctx.Err())
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), longest)
	defer cancel()
	defer context.AfterFunc(s.alive, cancel)()
	deadline, _ := ctx.Deadline()
	for try := 0; ; try++ {
		left := time.Until(deadline)
		if repeatable {
			left /= time.Duration(max(3-try, 1))
		}
		tryCtx, cancelTry := context.WithTimeout(ctx, left)
		err := request(tryCtx)
		if cancelTry(); err == nil {
			return nil
		}
		err = storeError(err)
		again := errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, errLearner) || repeatable && !driver.IsNotApplied(err)
		if !again || try > 2*len(s.client.Endpoints()) ||
			retry.Sleep(ctx, retry.Backoff(try, 2*time.Millisecond, 100*time.Millisecond)) != nil {
			return err
		}
	}
}

var errLearner = rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)

// storeError returns the error of a request as package driver defines it. ErrNoSpace is no refusal:
// the server applies requests that use up the space, and those that come before the alarm.
func storeError(err error) error {
	if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrTooManyRequests) || errors.Is(err, rpctypes.ErrNoLeader) {
		return &driver.RetryError{Err: err}
	}
	code := status.Code(err)
	if reply, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		code = reply.Code()
	}
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated, codes.DataLoss:
		return driver.NotApplied(err)
	}
	if code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded) { // of gRPC, a member or the caller
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// isRefusal reports whether nothing of a request was applied, perhaps because of one part of it.
func isRefusal(err error) bool {
	_, later := errors.AsType[*driver.RetryError](err)
	return driver.IsNotApplied(err) && !later
}

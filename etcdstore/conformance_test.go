//go:build unix

package etcdstore

import (
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
)

func TestConformanceOne(t *testing.T)   { conformance(t, 1) }
func TestConformanceThree(t *testing.T) { conformance(t, 3) }

// conformance runs the contract on a cluster that the cases share. Those with a restart have one of
// their own.
func conformance(t *testing.T, members int) {
	t.Parallel()
	cluster := servers.StartEtcdCluster(t, members)
	drivertest.Run(t, drivertest.Harness{Walk: members > 1 && os.Getenv("TEST_WHOLE") == "", New: func(tb testing.TB) drivertest.Backing {
		own, prefix := cluster, tb.Name()+"/"
		if strings.Contains(tb.Name(), "restart") {
			own, prefix = servers.StartEtcdCluster(tb, members), ""
		}
		b := backing(own, prefix)
		b.Restart = func(tb testing.TB) { restart(own) }
		return b
	}})
}

// restart kills all members, and starts them again.
func restart(cluster []*servers.Etcd) {
	if len(cluster) > 1 {
		for _, m := range cluster {
			m.Restart() // one after the other: a member serves only beside others
		}
		return
	}
	cluster[0].Restart()
}

// A client is a client of a test, with faults.
type client struct {
	*clientv3.Client
	proxies []*faultproxy.Proxy
	fault   atomic.Int32 // of the next transaction that may write
}

// dial returns a client that reaches each member through a proxy.
func dial(tb testing.TB, cluster []*servers.Etcd) *client {
	c := &client{}
	var addrs []string
	for _, m := range cluster {
		p := faultproxy.Start(tb, m.Addr)
		c.proxies, addrs = append(c.proxies, p), append(addrs, p.Addr())
	}
	var err error
	c.Client, err = clientv3.New(clientv3.Config{
		Endpoints: addrs, Logger: zap.NewNop(), DialTimeout: 10 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.intercept)},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// intercept applies the fault.
func (c *client) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	txn, ok := req.(*pb.TxnRequest)
	if !ok || !writes(txn) {
		return invoke(ctx, method, req, reply, conn, opts...)
	}
	fault := drivertest.Fault(c.fault.Swap(0))
	if fault == drivertest.RequestLost {
		return status.Error(codes.Unavailable, "the request was lost")
	}
	err := invoke(ctx, method, req, reply, conn, opts...)
	if fault == drivertest.ReplyLost && err == nil && !reply.(*pb.TxnResponse).Succeeded {
		c.fault.Store(int32(fault)) // It has changed nothing: the fault is that of the next one.
	} else if fault == drivertest.ReplyLost {
		return status.Error(codes.Unavailable, "the reply was lost")
	}
	return err
}

// writes reports whether a transaction may put or delete a key.
func writes(txn *pb.TxnRequest) bool {
	for _, op := range append(append([]*pb.RequestOp{}, txn.Success...), txn.Failure...) {
		if op.GetRequestPut() != nil || op.GetRequestDeleteRange() != nil || op.GetRequestTxn() != nil && writes(op.GetRequestTxn()) {
			return true
		}
	}
	return false
}

func backing(cluster []*servers.Etcd, prefix string) drivertest.Backing {
	var mu sync.Mutex
	clients := map[driver.Store]*client{}
	of := func(s driver.Store) *client {
		mu.Lock()
		defer mu.Unlock()
		return clients[s]
	}
	return drivertest.Backing{
		Open: func(tb testing.TB) driver.Store {
			c := dial(tb, cluster)
			s := New(c.Client, &Options{Prefix: prefix})
			mu.Lock()
			defer mu.Unlock()
			clients[s] = c
			return s
		},
		OpenSkewed: func(tb testing.TB, skew time.Duration) driver.Store {
			s := New(dial(tb, cluster).Client, &Options{Prefix: prefix})
			s.wall = func() time.Time { return time.Now().Add(skew) }
			return s
		},
		Occupy: func(tb testing.TB, name string, way int) bool {
			s := New(dial(tb, cluster).Client, &Options{Prefix: prefix})
			strangers := [][2]string{
				{s.recKey(name, time.Now().UnixMicro()), "not a record"},
				{s.recKey(name, time.Now().UnixMicro()), "{}"},
				{s.recKey(name, 1), `{"holder":"somebody","since":-9000000000000000000}`},
				{strings.TrimSuffix(s.recKey(name, 0), "0") + "x", "{}"},
			}
			if way >= len(strangers) {
				return false
			}
			if _, err := s.client.Put(tb.Context(), strangers[way][0], strangers[way][1]); err != nil {
				tb.Fatal(err)
			}
			return true
		},
		Crash: func(tb testing.TB, s driver.Store) { _ = of(s).Close() },
		Fault: func(_ testing.TB, s driver.Store, f drivertest.Fault) { of(s).fault.Store(int32(f)) },
		Sever: func(_ testing.TB, s driver.Store) {
			for _, p := range of(s).proxies {
				p.Reset()
			}
		},
		Silence: func(_ testing.TB, s driver.Store) {
			for _, p := range of(s).proxies {
				p.Hold(faultproxy.Down)
			}
		},
	}
}

func directClient(t *testing.T, members ...*servers.Etcd) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: servers.EtcdAddrs(members), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

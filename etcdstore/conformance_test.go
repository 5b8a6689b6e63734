//go:build unix

package etcdstore

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
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

var _ driver.Notifier = (*Store)(nil)

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
		b.Restart = func(tb testing.TB) {
			for _, m := range own { // one after the other: a member serves only beside others
				m.Restart()
			}
		}
		return b
	}})
}

// A client is a client of a test, with faults.
type client struct {
	*clientv3.Client
	proxies []*faultproxy.Proxy
	fault   atomic.Int32 // of the next transaction that may write

	// onUnary makes all requests, if it is set.
	onUnary atomic.Pointer[func(ctx context.Context, req any, send func(context.Context) error) error]
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
	must(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// intercept applies the fault to a transaction that makes, changes or ends an entry.
func (c *client) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if f := c.onUnary.Load(); f != nil {
		return (*f)(ctx, req, func(ctx context.Context) error { return invoke(ctx, method, req, reply, conn, opts...) })
	}
	txn, ok := req.(*pb.TxnRequest)
	if !ok || !mayChangeEntry(txn) {
		return invoke(ctx, method, req, reply, conn, opts...)
	}
	fault := drivertest.Fault(c.fault.Swap(0))
	if fault == drivertest.RequestLost {
		return status.Error(codes.Unavailable, "the request was lost")
	}
	err := invoke(ctx, method, req, reply, conn, opts...)
	if fault == drivertest.ReplyLost && err == nil && !changes(reply.(*pb.TxnResponse)) {
		c.fault.Store(int32(fault)) // It has changed nothing: the fault is that of the next one.
	} else if fault == drivertest.ReplyLost {
		return status.Error(codes.Unavailable, "the reply was lost")
	}
	return err
}

func changes(txn *pb.TxnResponse) bool {
	return slices.ContainsFunc(txn.GetResponses(), func(r *pb.ResponseOp) bool {
		return r.GetResponsePut() != nil || r.GetResponseDeleteRange().GetDeleted() > 0 || changes(r.GetResponseTxn())
	})
}

// mayChangeEntry reports whether a transaction may put or delete the key of an entry.
func mayChangeEntry(txn *pb.TxnRequest) bool {
	for _, op := range txn.Success {
		key := append(op.GetRequestPut().GetKey(), op.GetRequestDeleteRange().GetKey()...)
		if bytes.Contains(key, []byte("lock/")) || op.GetRequestTxn() != nil && mayChangeEntry(op.GetRequestTxn()) {
			return true
		}
	}
	return false
}

// patient is the bound of a request in tests: a disk that others keep busy holds up a member for
// seconds.
const patient = time.Minute

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
			s.writes.Bound = patient
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
			defer s.Close()
			strangers := [][2]string{
				{s.entriesKey(name) + fmt.Sprint(0), "not a record"},
				{s.entriesKey(name) + fmt.Sprint(0), "{}"},
				{s.entriesKey(name) + fmt.Sprint(0), `{"base":1,"holder":"somebody","since":-9000000000000000000}`},
				{s.entriesKey(name), `{"base":9007199254740991,"kept":true}`},
				{s.entriesKey(name), `{"base":1,"limit":-1}`},
				{s.entriesKey(name), `{"base":1,"metadata":{"key":"\u001b"}}`},
			}
			if way >= len(strangers) {
				return false
			}
			_, err := s.client.Put(tb.Context(), strangers[way][0], strangers[way][1])
			must(tb, err)
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
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestMain has twice as many tests at a time as the others of this module: most of them wait for
// leases, which have whole seconds, to end.
func TestMain(m *testing.M) {
	flag.Parse()
	if n, err := strconv.Atoi(flag.Lookup("test.parallel").Value.String()); err == nil {
		_ = flag.Set("test.parallel", strconv.Itoa(max(n, 8)))
	}
	os.Exit(m.Run())
}

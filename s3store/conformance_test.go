//go:build unix

package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// TestConformance runs the contract in virtual time, on a server in the process, whose listings
// have many pages.
func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Virtual: true, New: func(tb testing.TB) drivertest.Backing {
		server := fake(tb)
		paged := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.URL.RawQuery += "&max-keys=7"
			server.ServeHTTP(w, r)
		})
		return backing(tb, func() *network { return &network{next: inProcess{paged}} })
	}})
}

// TestConformanceS3 runs it on one server, over connections that are cut and stopped, with requests
// and replies that are late.
func TestConformanceS3(t *testing.T) {
	t.Parallel()
	addr := startS3(t)
	walk := os.Getenv("TEST_S3_SERVER")+os.Getenv("TEST_WHOLE") == ""
	drivertest.Run(t, drivertest.Harness{Slow: true, Walk: walk, New: func(tb testing.TB) drivertest.Backing {
		b := backing(tb, func() *network {
			proxy := faultproxy.Start(tb, addr)
			if walk {
				proxy.Delay(faultproxy.Up, 0, 20*time.Millisecond)
				proxy.Delay(faultproxy.Down, 0, 20*time.Millisecond)
			}
			transport := &http.Transport{}
			tb.Cleanup(transport.CloseIdleConnections)
			return &network{next: transport, proxy: proxy, addr: proxy.Addr()}
		})
		b.Sever = func(_ testing.TB, s driver.Store) { s.(*watching).network.proxy.Reset() }
		return b
	}})
}

// inProcess is the way to a server in this process.
type inProcess struct{ server http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	p.server.ServeHTTP(w, r)
	return w.Result(), nil
}

// A network is the way of a store to its server, with faults.
type network struct {
	next  http.RoundTripper
	proxy *faultproxy.Proxy // nil in the process
	addr  string

	fault        atomic.Int32 // of the next write, a drivertest.Fault
	dead, silent atomic.Bool
}

var errLost = errors.New("it was lost on the way")

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.dead.Load() {
		return nil, errLost
	}
	fault := drivertest.Fault(0)
	if r.Method == http.MethodPut && !strings.HasSuffix(r.URL.Path, "~probe") {
		fault = drivertest.Fault(n.fault.Swap(0))
	}
	if fault == drivertest.RequestLost {
		return nil, errLost
	}
	resp, err := n.next.RoundTrip(r)
	switch {
	case err != nil:
		return nil, err
	case n.silent.Load():
		<-r.Context().Done()
		err = r.Context().Err()
	case fault == drivertest.ReplyLost && resp.StatusCode != http.StatusOK:
		n.fault.Store(int32(fault)) // It has changed nothing: the fault is that of the next one.
	case fault == drivertest.ReplyLost:
		err = errLost
	}
	if err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// A place is a prefix of a bucket, with stores each of which looks at a name when another one has
// made an entry that ends soon, as those that wait for it do.
type place struct {
	prefix  string
	network func() *network
	mu      sync.Mutex
	stores  []*watching
	opened  int
}

type watching struct {
	*Store
	network *network
	place   *place
}

// add makes a store that a case may open.
func (p *place) add(tb testing.TB) {
	n := p.network()
	p.stores = append(p.stores, &watching{open(tb, dial(n.addr, n), p.prefix), n, p})
}

func (p *place) open(tb testing.TB) *watching {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened++; p.opened > len(p.stores) {
		p.add(tb)
	}
	return p.stores[p.opened-1]
}

func (s *watching) look(name string, lasts time.Duration) {
	if lasts <= driver.MinTTL || lasts > time.Minute { // a look of a Renew, or an entry that does not end
		return
	}
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	var group sync.WaitGroup
	for _, other := range s.place.stores {
		if other != s && !other.network.dead.Load() && !other.network.silent.Load() {
			group.Go(func() { _, _ = other.Lookup(context.Background(), name) })
		}
	}
	group.Wait()
}

func (s *watching) Acquire(ctx context.Context, req driver.Request) (driver.Result, error) {
	defer func() { s.look(req.Name, req.Place); s.look(req.Name, req.TTL) }()
	return s.Store.Acquire(ctx, req)
}

func (s *watching) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	for _, req := range reqs {
		defer s.look(req.Name, req.TTL)
	}
	return s.Store.Renew(ctx, reqs)
}

func (s *watching) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	defer s.look(req.Name, req.Keep)
	return s.Store.Release(ctx, req)
}

func backing(tb testing.TB, way func() *network) drivertest.Backing {
	prefix := tb.Name() + "/"
	p := &place{prefix: prefix[max(0, len(prefix)-maxPrefix):], network: way}
	for range 8 {
		p.add(tb)
	}
	of := func(s driver.Store) *network { return s.(*watching).network }
	return drivertest.Backing{
		Open: func(tb testing.TB) driver.Store { return p.open(tb) },
		Occupy: func(tb testing.TB, name string, way int) bool {
			const record = `{"Format":%d,"Name":%q,"Writes":1,"Last":9,"Entries":[{"Owner":"o","Token":9,"Tokens":1,"Limit":1,"Until":%d}]}`
			strangers := []string{
				"", "not a record", "{}", fmt.Sprintf(record, format+1, name, 1), fmt.Sprintf(record, format, name, -1),
			}
			if way >= len(strangers) {
				return false
			}
			_, err := p.stores[0].client.PutObject(tb.Context(), &s3.PutObjectInput{
				Bucket: aws.String(servers.S3Bucket), Key: aws.String(p.prefix + encode(name)), Body: strings.NewReader(strangers[way]),
			})
			if err != nil {
				tb.Fatal(err)
			}
			return true
		},
		Restart: func(testing.TB) {},
		Crash:   func(_ testing.TB, s driver.Store) { of(s).dead.Store(true) },
		Fault:   func(_ testing.TB, s driver.Store, f drivertest.Fault) { of(s).fault.Store(int32(f)) },
		Silence: func(_ testing.TB, s driver.Store) { of(s).silent.Store(true) },
	}
}

// What others leave no time for is not applied, and can be done later: the store is there.
func TestContended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				answer(http.StatusPreconditionFailed, "PreconditionFailed").ServeHTTP(w, r)
				return
			}
			answer(http.StatusNotFound, "NoSuchKey").ServeHTTP(w, r)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var later *driver.RetryError
		res, err := open(t, dial("", inProcess{server}), "").Acquire(ctx, driver.Request{Name: "name", Owner: "o", Holder: "h", TTL: time.Hour})
		if !errors.As(err, &later) || !errors.Is(err, context.DeadlineExceeded) || res.Granted {
			t.Errorf("Acquire of an object that always changes: %+v, %v; want a RetryError", res, err)
		}
	})
}

//go:build unix

package s3store

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// TestConformanceS3 runs the contract on one server, which the cases share. Package casrecord runs it
// in memory, each time.
func TestConformanceS3(t *testing.T) { conformance(t, 0, false) }

// TestConformanceDelayed is over a network in which each request and each reply is late.
func TestConformanceDelayed(t *testing.T) { conformance(t, 20*time.Millisecond, true) }

func conformance(t *testing.T, delay time.Duration, walk bool) {
	t.Parallel()
	addr := startS3(t)
	drivertest.Run(t, drivertest.Harness{Slow: true, Walk: walk, New: func(tb testing.TB) drivertest.Backing { return backing(tb, addr, delay) }})
}

// A faulty is the connections of a store, with faults.
type faulty struct {
	http.Transport
	proxy *faultproxy.Proxy
	fault atomic.Int32 // of the next write
}

var errLost = errors.New("it was lost on the way")

// RoundTrip applies the fault to a request that replaces a record.
func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPut || strings.HasSuffix(r.URL.Path, probe) {
		return f.Transport.RoundTrip(r)
	}
	fault := drivertest.Fault(f.fault.Swap(0))
	if fault == drivertest.RequestLost {
		return nil, errLost
	}
	resp, err := f.Transport.RoundTrip(r)
	if fault != drivertest.ReplyLost || err != nil {
		return resp, err
	}
	if resp.StatusCode != http.StatusOK {
		f.fault.Store(int32(fault)) // It has changed nothing: the fault is that of the next one.
		return resp, nil
	}
	_ = resp.Body.Close()
	return nil, errLost
}

// A place is a prefix of a bucket, with stores each of which looks at a name when another one has
// made an entry that ends soon, as those that wait for it do.
type place struct {
	addr, prefix string
	delay        time.Duration
	mu           sync.Mutex
	all          []*watching
	opened       int
}

type watching struct {
	*Store
	faulty *faulty
	place  *place
	blind  atomic.Bool
}

// add makes a store that a case may open.
func (p *place) add(tb testing.TB) {
	f := &faulty{proxy: faultproxy.Start(tb, p.addr)}
	tb.Cleanup(f.CloseIdleConnections)
	f.proxy.Delay(faultproxy.Up, 0, p.delay)
	f.proxy.Delay(faultproxy.Down, 0, p.delay)
	client := s3.New(dial(tb, f.proxy.Addr()).Options(), func(o *s3.Options) { o.HTTPClient = &http.Client{Transport: f} })
	s, err := New(client, servers.S3Bucket, &Options{Prefix: p.prefix})
	if err != nil {
		tb.Fatal(err)
	}
	p.all = append(p.all, &watching{Store: s, faulty: f, place: p})
}

func (p *place) open(tb testing.TB) *watching {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened++; p.opened > len(p.all) {
		p.add(tb)
	}
	return p.all[p.opened-1]
}

func (s *watching) look(name string, lasts time.Duration) {
	if lasts <= driver.MinTTL || lasts > time.Minute { // a look of a Renew, or an entry that does not end
		return
	}
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	var group sync.WaitGroup
	for _, other := range s.place.all {
		if other != s && !other.blind.Load() {
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

func backing(tb testing.TB, addr string, delay time.Duration) drivertest.Backing {
	prefix := tb.Name() + "/"
	p := &place{addr: addr, prefix: prefix[max(0, len(prefix)-maxPrefix):], delay: delay}
	for range 8 {
		p.add(tb)
	}
	of := func(s driver.Store) *watching { return s.(*watching) }
	return drivertest.Backing{
		Open: func(tb testing.TB) driver.Store { return p.open(tb) },
		Occupy: func(tb testing.TB, name string, way int) bool {
			strangers := []string{"", "not a record", "{}", `{"format":1,"writes":1,"last":-1}`}
			if way >= len(strangers) {
				return false
			}
			_, err := dial(tb, addr).PutObject(tb.Context(), &s3.PutObjectInput{
				Bucket: aws.String(servers.S3Bucket), Key: aws.String(p.prefix + encode(name)), Body: strings.NewReader(strangers[way]),
			})
			if err != nil {
				tb.Fatal(err)
			}
			return true
		},
		Crash:   func(_ testing.TB, s driver.Store) { of(s).blind.Store(true); of(s).faulty.proxy.Close() },
		Fault:   func(_ testing.TB, s driver.Store, f drivertest.Fault) { of(s).faulty.fault.Store(int32(f)) },
		Sever:   func(_ testing.TB, s driver.Store) { of(s).faulty.proxy.Reset() },
		Silence: func(_ testing.TB, s driver.Store) { of(s).blind.Store(true); of(s).faulty.proxy.Hold(faultproxy.Down) },
	}
}

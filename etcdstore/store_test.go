//go:build unix

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe" // sets one clock of a time

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/lockqueue"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// open opens a store whose names no other test has.
func open(t *testing.T, cluster ...*servers.Etcd) *Store { return openClient(t, dial(t, cluster)) }

func openClient(t *testing.T, c *client) *Store {
	s := New(c.Client, &Options{Prefix: t.Name() + "/"})
	s.writes.Bound = patient
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *Store) leaseOf(name, owner string) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[s.entries[[2]string{name, owner}].record.lease]
}

// entriesKey returns what the keys of the entries of a name begin with.
func (s *Store) entriesKey(name string) string { return s.lockKeys + name + "\x00" }

func openText(t *testing.T, text string) (*Store, error) {
	u, err := url.Parse(text)
	must(t, err)
	s, err := openURL(t.Context(), u)
	if err != nil {
		return nil, err
	}
	return s.(*Store), nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func request(owner string, ttl time.Duration) driver.Request {
	return driver.Request{Name: "name", Owner: owner, Holder: "holder", TTL: ttl}
}

func grant(t *testing.T, s *Store, req driver.Request) driver.Result {
	t.Helper()
	res, err := s.Acquire(t.Context(), req)
	if err != nil || !res.Granted {
		t.Fatalf("Acquire: %+v, %v, want it granted", res, err)
	}
	return res
}

func waitFor(t *testing.T, s *Store, name, owner string) driver.Result {
	t.Helper()
	res, err := s.Acquire(t.Context(), driver.Request{Name: name, Owner: owner, Holder: "holder", TTL: time.Hour, Place: time.Hour})
	if err != nil || !res.Waiting {
		t.Fatalf("Acquire: %+v, %v, want a place", res, err)
	}
	return res
}

func release(t *testing.T, s *Store, owner string) {
	t.Helper()
	if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: owner}); !released || err != nil {
		t.Errorf("Release: %v, %v", released, err)
	}
}

func renewed(t *testing.T, s *Store, owner string, ttl time.Duration, token int64) driver.State {
	t.Helper()
	return renewedAs(t, s, "name", owner, ttl, token)
}

// renewedAs has a lock renewed together with another, which nobody holds.
func renewedAs(t *testing.T, s *Store, name, owner string, ttl time.Duration, token int64) driver.State {
	t.Helper()
	entries, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: name, Owner: owner, TTL: ttl, Token: token}, {Name: "nobody's", Owner: owner, TTL: ttl}})
	if err != nil {
		t.Errorf("Renew of %q: %v", name, err)
	}
	return entries[0].State
}

var eventually = storecheck.Eventually

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
		panic("unreachable")
	}
}

type notice struct {
	name, owner string
	token       int64
}

func noticesOf(s *Store) <-chan notice {
	notices := make(chan notice, 10)
	s.Notify(func(name, owner string, token int64) { notices <- notice{name, owner, token} })
	return notices
}

// An observed is a store whose requests a test sees and changes.
type observed struct {
	*Store
	*client
}

func openObserved(t *testing.T, member *servers.Etcd) *observed {
	c := dial(t, []*servers.Etcd{member})
	o := &observed{openClient(t, c), c}
	grant(t, o.Store, driver.Request{Name: "first", Owner: "first", TTL: 77 * time.Second}) // It has the base of the tokens.
	_, err := o.Release(t.Context(), driver.ReleaseRequest{Name: "first", Owner: "first"})
	must(t, err)
	return o
}

// onChange has f make the requests that may change an entry.
func (o *observed) onChange(f func(ctx context.Context, txn *pb.TxnRequest, send func(context.Context) error) error) {
	onUnary := func(ctx context.Context, req any, send func(context.Context) error) error {
		if txn, ok := req.(*pb.TxnRequest); ok && mayChangeEntry(txn) {
			return f(ctx, txn, send)
		}
		return send(ctx)
	}
	o.onUnary.Store(&onUnary)
}

// TestOneMember has what one member suffices for.
func TestOneMember(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	for name, test := range map[string]func(t *testing.T, member *servers.Etcd){
		"request that arrives after its release": testLateRequest,
		"late change":                            testLateChange,
		"together":                               testTogether,
		"sweep":                                  testSweep,
		"base":                                   testBase,
		"reader beside others":                   testReaderBesideOthers,
		"lost lease":                             testLostLease,
		"rule":                                   testRule,
		"fence":                                  testFence,
		"renewal that is refused":                testRefusedRenewal,
		"renewal that gets lost":                 testLostRenewal,
		"change by others":                       testChangeByOthers,
		"client closed":                          testClientClosed,
		"certain from the sending":               testCertain,
		"ends together":                          testEndsTogether,
		"broken in part":                         testBrokenInPart,
		"no answer":                              testNoAnswer,
		"watch behind a renewal":                 testWatchBehindARenewal,
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			test(t, member)
		})
	}
}

// A request that arrives after the Release of its owner costs no other one, though they share a
// lease. What it makes lasts for its TTL, though the other is renewed.
func testLateRequest(t *testing.T, member *servers.Etcd) {
	const ttl = 2 * time.Second
	s := openObserved(t, member)
	arrive, arrived := make(chan struct{}), make(chan error, 1)
	var isLost atomic.Bool
	s.onChange(func(ctx context.Context, _ *pb.TxnRequest, send func(context.Context) error) error {
		if !isLost.Swap(true) {
			go func() {
				<-arrive
				arrived <- send(context.WithoutCancel(ctx))
			}()
			return status.Error(codes.Unavailable, "the reply was lost")
		}
		return send(ctx)
	})
	if res, err := s.Acquire(t.Context(), request("owner", ttl)); err == nil || driver.IsNotApplied(err) {
		t.Fatalf("Acquire: %+v, %v, want it in doubt", res, err)
	}
	if state := renewed(t, s.Store, "owner", ttl, 0); state != driver.Lost {
		t.Errorf("Renew: %v, want Lost", state)
	}
	grant(t, s.Store, driver.Request{Name: "another", Owner: "another", TTL: ttl})
	if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner"}); released || err != nil {
		t.Fatalf("Release: %v, %v", released, err)
	}
	close(arrive)
	must(t, receive(t, arrived))
	eventually(t, "end of the late entry", func() bool {
		if state := renewedAs(t, s.Store, "another", "another", ttl, 0); state != driver.Held {
			t.Fatalf("Renew: %v, want the other lock held", state)
		}
		holds, err := s.Lookup(t.Context(), "name")
		return err == nil && len(holds) == 0
	})
}

// A Break whose caller gives up when it has ended one of two holds does not say that it changed
// nothing.
func testBrokenInPart(t *testing.T, member *servers.Etcd) {
	s := openObserved(t, member)
	for _, owner := range []string{"a", "b"} {
		grant(t, s.Store, driver.Request{Name: "name", Owner: owner, TTL: time.Minute, Limit: driver.Shared})
	}
	ctx, giveUp := context.WithCancel(t.Context())
	s.onChange(func(ctx context.Context, _ *pb.TxnRequest, send func(context.Context) error) error {
		defer giveUp()
		return send(context.WithoutCancel(ctx))
	})
	if ended, err := s.Break(ctx, "name", 0); len(ended) != 1 || err == nil || driver.IsNotApplied(err) {
		t.Errorf("%d have ended, %v", len(ended), err)
	}
}

// An entry that is not renewed ends, though others on its lease go on. One that another Store has
// renewed, or its own while it ends it, stays: it is not shortened, and its owner is notified of
// its end.
func testSweep(t *testing.T, member *servers.Etcd) {
	const ttl = 8 * time.Second // All is renewed before, on a busy machine, too.
	s, other := openObserved(t, member), open(t, member)
	renew := func(s *Store, name string, ttl time.Duration) {
		t.Helper()
		if state := renewedAs(t, s, name, "owner", ttl, 0); state != driver.Held {
			t.Errorf("Renew of %q: %v, want Held", name, state)
		}
	}
	s.onChange(func(ctx context.Context, txn *pb.TxnRequest, send func(context.Context) error) error {
		if err := send(ctx); err != nil || !strings.Contains(fmt.Sprint(txn), "/lock/in doubt") {
			return err
		}
		return status.Error(codes.Unavailable, "the reply was lost")
	})
	names := []string{"in doubt", "unrenewed", "renewed", "left", "taken back", "not shortened", "adopted", "by another at last", "at last"}
	for _, name := range names {
		req := driver.Request{Name: name, Owner: "owner", TTL: ttl}
		switch name {
		case "taken back": // to a shorter time
			req.TTL *= 3
		case "not shortened":
			req.TTL = time.Hour
		}
		if res, err := s.Acquire(t.Context(), req); res.Granted != (name != "in doubt") {
			t.Fatalf("Acquire of %q: %+v, %v", name, res, err)
		}
	}
	renew(other, "left", ttl)
	renew(other, "taken back", ttl)
	renew(other, "not shortened", driver.MinTTL)
	renew(other, "in doubt", time.Hour)
	var atLast sync.Map
	s.onChange(func(ctx context.Context, txn *pb.TxnRequest, send func(context.Context) error) error {
		for name, by := range map[string]*Store{"by another at last": other, "at last": s.Store} {
			if strings.Contains(fmt.Sprint(txn), "/lock/"+name) {
				if _, isSecond := atLast.LoadOrStore(name, true); !isSecond { // The first one is the end by the sweep.
					renew(by, name, time.Hour)
				}
			}
		}
		return send(ctx)
	})
	for end := time.Now().Add(ttl + grain); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		renew(s.Store, "renewed", ttl)
		renew(s.Store, "taken back", ttl)
		renew(other, "adopted", ttl)
	}
	s.onUnary.Store(nil)
	for _, name := range names {
		holds, err := s.Lookup(t.Context(), name)
		if isOver := name == "unrenewed" || name == "left"; isOver {
			eventually(t, "end of what is "+name, func() bool {
				holds, err := s.Lookup(t.Context(), name)
				return err == nil && len(holds) == 0
			})
		} else if err != nil || len(holds) == 0 {
			t.Errorf("Lookup of %q: %v, %v", name, holds, err)
		}
	}
	eventually(t, "end of what the Store knows of the entries of another", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.entries) <= 4
	})
	for _, store := range []*Store{other, s.Store} { // It prolongs nothing, and does not shorten.
		for _, token := range []int64{1, 0} {
			if state := renewedAs(t, store, "in doubt", "owner", ttl, token); (state == driver.Held) != (token == 0) {
				t.Errorf("Renew with the token %d: %v", token, state)
			}
		}
	}
	if holds, err := s.Lookup(t.Context(), "in doubt"); err != nil || len(holds) != 1 || holds[0].Remaining < 50*time.Minute {
		t.Errorf("Lookup: %v, %v, want it held for an hour", holds, err)
	}
	notices := noticesOf(s.Store)
	_, err := other.Break(t.Context(), "at last", 0)
	must(t, err)
	for n := receive(t, notices); n.name != "at last" || n.token != 0; n = receive(t, notices) {
	}
}

// Tokens rise though the clock of a client is ahead, and when somebody deletes all keys of the
// prefix, whichever Store is first then. A base that cannot be read costs no hold.
func testBase(t *testing.T, member *servers.Etcd) {
	s, other := open(t, member), open(t, member)
	s.wall = func() time.Time { return time.Now().Add(time.Hour) }
	var last driver.Result
	hold := func(s *Store) {
		t.Helper()
		next := grant(t, s, request("owner", time.Minute))
		if release(t, s, "owner"); next.Token <= last.Token {
			t.Errorf("the token %d follows %d", next.Token, last.Token)
		}
		last = next
	}
	hold(other)
	hold(s)
	hold(other)
	_, err := other.client.Delete(t.Context(), t.Name()+"/", clientv3.WithPrefix())
	must(t, err)
	for _, s := range []*Store{open(t, member), other, s} {
		hold(s)
	}
	grant(t, other, request("owner", time.Hour))
	_, err = other.client.Put(t.Context(), other.baseKey, "foreign")
	must(t, err)
	if res, err := other.Acquire(t.Context(), driver.Request{Name: "free", Owner: "owner", TTL: time.Hour}); !errors.Is(err, driver.ErrCorrupt) {
		t.Errorf("Acquire: %+v, %v, want ErrCorrupt", res, err)
	}
	if state := renewed(t, other, "owner", time.Hour, 0); state != driver.Held {
		t.Errorf("Renew: %v, want Held", state)
	}
}

// A reader is granted a name however many others come before each of its transactions. It waits, or
// is refused, if one that it must not overtake has come since it has read the queue.
func testReaderBesideOthers(t *testing.T, member *servers.Etcd) {
	s, other := openObserved(t, member), open(t, member)
	for _, place := range []time.Duration{time.Minute, 0} {
		reader := request("reader", time.Hour)
		reader.Name, reader.Limit, reader.Place = fmt.Sprint("readers ", place), driver.Shared, place
		beside, others := reader, 0
		beside.Place = time.Minute
		s.onChange(func(ctx context.Context, _ *pb.TxnRequest, send func(context.Context) error) error {
			if others++; others < 100 {
				beside.Owner = fmt.Sprint("before ", others)
				if res, err := other.Acquire(t.Context(), beside); err != nil || !res.Granted && !res.Waiting {
					t.Errorf("Acquire: %+v, %v", res, err)
				}
				if beside.Name == fmt.Sprint("writer ", place) {
					beside.Limit = 0
				}
			}
			return send(ctx)
		})
		if grant(t, s.Store, reader); others > 20 {
			t.Errorf("a reader takes %d transactions", others)
		}
		reader.Name, beside.Name = fmt.Sprint("writer ", place), fmt.Sprint("writer ", place)
		others = 0
		res, err := s.Acquire(t.Context(), reader)
		if err != nil || res.Waiting != (place > 0) || res.Granted || res.Held.Name != reader.Name {
			t.Errorf("Acquire behind a writer that waits: %+v, %v", res, err)
		}
		s.mu.Lock()
		if e := s.entries[[2]string{reader.Name, "reader"}]; (e != nil) != (place > 0) || e != nil && time.Until(e.until) > place {
			t.Errorf("a place for %v is %+v", place, e)
		}
		s.mu.Unlock()
		s.onUnary.Store(nil)
		if state := renewedAs(t, other, reader.Name, "reader", time.Hour, 0); (state == driver.Lost) != (place == 0) {
			t.Errorf("Renew of a reader with a place for %v: %v", place, state)
		}
	}
}

// When a lease has ended on the server, the owner is told and finds its hold lost, others are
// granted the name, and the looks that follow shorten no hold that has another lease.
func testLostLease(t *testing.T, member *servers.Etcd) {
	s := open(t, member)
	notices := noticesOf(s)
	grant(t, s, driver.Request{Name: "beside", Owner: "owner", TTL: time.Hour}) // as one with NoRenew
	first := grant(t, s, request("owner", time.Minute))
	l := s.leaseOf("name", "owner")
	time.Sleep(2 * watchDelay) // or it is told a moment later
	_, err := s.client.Revoke(t.Context(), l.id)
	must(t, err)
	for n := receive(t, notices); n.owner != "owner" || n.token != 0; n = receive(t, notices) {
	}
	s.mu.Lock()
	l.certain = time.Now().Add(time.Second) // so that it is kept alive
	s.mu.Unlock()
	if state := renewed(t, s, "owner", time.Minute, first.Token); state != driver.Lost {
		t.Errorf("Renew: %v, want Lost", state)
	}
	if second := grant(t, s, request("next", time.Minute)); second.Token <= first.Token {
		t.Errorf("the token %d follows %d", second.Token, first.Token)
	}
	if state := renewedAs(t, s, "beside", "owner", driver.MinTTL, 0); state != driver.Held {
		t.Errorf("Renew: %v, want Held", state)
	}
	if holds, err := s.Lookup(t.Context(), "beside"); err != nil || len(holds) != 1 || holds[0].Remaining < 50*time.Minute {
		t.Errorf("Lookup: %v, %v, want it held for an hour", holds, err)
	}
}

// A transaction with the condition of a hold changes nothing when the hold is over, and none with
// that of a place or of a lock that is known to be over. The Client has a prefix.
func testFence(t *testing.T, member *servers.Etcd) {
	s, other := open(t, member), open(t, member)
	c := holdfast.New(s, &holdfast.Config{Prefix: "prefix/"})
	defer c.Close()
	commits := func(condition clientv3.Cmp, want bool) {
		t.Helper()
		resp, err := s.client.Txn(t.Context()).If(condition).Then(clientv3.OpPut("data", "")).Commit()
		if must(t, err); resp.Succeeded != want {
			t.Errorf("a transaction commits: %v, want %v", resp.Succeeded, want)
		}
	}
	for _, end := range []func(*holdfast.Lock) error{
		(*holdfast.Lock).Release,
		func(lock *holdfast.Lock) error { return lock.ReleaseKeep(time.Hour) },
		func(lock *holdfast.Lock) error {
			_, err := other.Break(t.Context(), lock.FullName(), lock.Token())
			return err
		},
	} {
		lock, err := c.Acquire(t.Context(), "name", nil)
		must(t, err)
		isHeld := s.Held(lock)
		must(t, lock.Extend(t.Context(), time.Hour)) // It moves to another lease.
		commits(isHeld, true)
		must(t, end(lock))
		commits(isHeld, false)
		_ = lock.Release()
		commits(s.Held(lock), false)
		_, err = other.Break(t.Context(), lock.FullName(), 0)
		must(t, err)
	}
	grant(t, s, request("owner", time.Hour))
	place := waitFor(t, s, "name", "waiter")
	commits(s.Held(lockOf{place.Token}), false)
}

// A lockOf is the lock with a token.
type lockOf struct{ token int64 }

func (l lockOf) FullName() string { return "name" }
func (l lockOf) Token() int64     { return l.token }

// Requests for one name that are sent together have tokens of their own, and no more hold than
// their limit. So say renewals that are sent together.
func testTogether(t *testing.T, member *servers.Etcd) {
	s := openObserved(t, member)
	var group sync.WaitGroup
	var tokens sync.Map
	var reqs []driver.RenewRequest
	for i := range 200 {
		reqs = append(reqs, driver.RenewRequest{Name: "many", Owner: fmt.Sprint("owner ", i), TTL: time.Hour})
		group.Go(func() {
			req := driver.Request{Name: "many", Owner: fmt.Sprint("owner ", i), TTL: time.Hour, Limit: 100, Place: time.Hour}
			res, err := s.Acquire(t.Context(), req)
			if other, isSecond := tokens.LoadOrStore(res.Token, i); err != nil || isSecond {
				t.Errorf("Acquire %d: %+v, %v, as %v", i, res, err, other)
			}
		})
	}
	group.Wait()
	if holds, err := s.Lookup(t.Context(), "many"); err != nil || len(holds) != 100 || holds[0].Waiting != 100 {
		t.Errorf("Lookup: %d holds, %v, want 100", len(holds), err)
	}
	entries, err := s.Renew(t.Context(), reqs)
	must(t, err)
	waiting := 0
	for i, e := range entries {
		if e.State == driver.Waiting {
			waiting++
		}
		if owner, _ := tokens.Load(e.Token); owner != i || i == 199 && waiting != 100 {
			t.Errorf("Renew of %d: %+v, the token of %v; %d wait", i, e, owner, waiting)
		}
	}
}

// What changes a hold, and arrives after the next request of the owner, changes nothing then.
func testLateChange(t *testing.T, member *servers.Etcd) {
	s := openObserved(t, member)
	release := func(keep time.Duration) func(name string) error {
		return func(name string) error {
			_, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: "owner", Keep: keep})
			return err
		}
	}
	renew := func(ttl time.Duration) func(name string) error {
		return func(name string) error {
			_, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: name, Owner: "owner", TTL: ttl}})
			return err
		}
	}
	for i, change := range []struct{ late, next func(name string) error }{
		{release(0), renew(time.Hour)}, {release(time.Minute), renew(time.Hour)}, {release(time.Minute), release(2 * time.Hour)},
		{renew(2 * time.Hour), renew(time.Hour)}, {renew(2 * time.Hour), renew(3 * time.Hour)},
	} {
		name := fmt.Sprint("name", i)
		grant(t, s.Store, driver.Request{Name: name, Owner: "owner", Holder: "holder", TTL: time.Hour})
		var late *pb.TxnRequest
		s.onChange(func(_ context.Context, txn *pb.TxnRequest, _ func(context.Context) error) error {
			late = txn
			return status.Error(codes.Unavailable, "it takes long")
		})
		if err := change.late(name); err == nil || driver.IsNotApplied(err) || late == nil {
			t.Fatalf("change %d: %v, want it in doubt", i, err)
		}
		s.onUnary.Store(nil)
		must(t, change.next(name))
		before, err := s.Lookup(t.Context(), name)
		must(t, err)
		_, err = clientv3.RetryKVClient(s.client.Client).Txn(t.Context(), late)
		must(t, err)
		after, err := s.Lookup(t.Context(), name)
		if err != nil || len(after) != 1 || after[0].Kept != before[0].Kept || after[0].Remaining < before[0].Remaining-10*time.Minute ||
			after[0].Kept && after[0].Holder != "" {
			t.Errorf("change %d: %+v, %v, and before it arrived %+v", i, after, err, before)
		}
	}
}

// A renewal that the server refuses costs no other one.
func testRefusedRenewal(t *testing.T, member *servers.Etcd) {
	s, other := openObserved(t, member), open(t, member)
	var reqs []driver.RenewRequest
	for i := range 20 {
		req := request("owner", time.Hour)
		req.Name = fmt.Sprint("name", i)
		grant(t, other, req)
		reqs = append(reqs, driver.RenewRequest{Name: req.Name, Owner: req.Owner, TTL: req.TTL})
	}
	for _, isChange := range []bool{true, false} {
		deny := func(ctx context.Context, req any, send func(context.Context) error) error {
			txn, ok := req.(*pb.TxnRequest)
			if ok && mayChangeEntry(txn) == isChange && strings.Contains(fmt.Sprint(req), "/lock/name7\\") {
				return rpctypes.ErrGRPCPermissionDenied
			}
			return send(ctx)
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
}

// A longer lease that an entry has not got counts for no later renewal. One that it has got, though
// the reply was lost, keeps it for no longer than was requested.
func testLostRenewal(t *testing.T, member *servers.Etcd) {
	s := openObserved(t, member)
	held := grant(t, s.Store, request("owner", 3*time.Second))
	moved := driver.Request{Name: "moved", Owner: "owner", TTL: driver.MinTTL}
	grant(t, s.Store, moved)
	s.onChange(func(ctx context.Context, txn *pb.TxnRequest, send func(context.Context) error) error {
		if strings.Contains(fmt.Sprint(txn), "/lock/moved") {
			must(t, send(ctx))
		}
		return status.Error(codes.Internal, "the request or the reply was lost")
	})
	for _, req := range []driver.RenewRequest{{Name: "name", Owner: "owner", TTL: time.Hour}, {Name: "moved", Owner: "owner", TTL: 2100 * time.Millisecond}} {
		if entries, err := s.Renew(t.Context(), []driver.RenewRequest{req}); err == nil || entries[0].State != driver.Unknown {
			t.Errorf("Renew of %q: %v, %v, want it in doubt", req.Name, entries, err)
		}
	}
	s.onUnary.Store(nil)
	if state := renewed(t, s.Store, "owner", time.Minute, held.Token); state != driver.Held {
		t.Errorf("Renew: %v", state)
	}
	if holds, err := s.Lookup(t.Context(), "name"); err != nil || len(holds) != 1 || holds[0].Remaining < 50*time.Second {
		t.Errorf("Lookup: %v, %v, want it held for a minute", holds, err)
	}
	eventually(t, "end of all entries but the one that is renewed", func() bool {
		const ttl = 1100 * time.Millisecond
		l, err := s.leaseFor(t.Context(), leaseSeconds(ttl), time.Now().Add(ttl)) // as for another entry
		must(t, err)
		_, err = s.client.KeepAliveOnce(t.Context(), l.id)
		must(t, err)
		holds, err := s.Lookup(t.Context(), "moved")
		must(t, err)
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(holds) == 0 && len(s.entries) == 1
	})
}

// What others have changed of a hold is in the next answer to its owner, without a notice.
func testChangeByOthers(t *testing.T, member *servers.Etcd) {
	s, other := openObserved(t, member), openObserved(t, member)
	grant(t, s.Store, driver.Request{Name: "beside", Owner: "owner", TTL: time.Hour})
	renew := func(s *Store, name string, want driver.State) { // together with another one
		t.Helper()
		var reqs []driver.RenewRequest
		for _, name := range []string{name, "beside"} {
			reqs = append(reqs, driver.RenewRequest{Name: name, Owner: "owner", TTL: time.Hour})
		}
		entries, err := s.Renew(t.Context(), reqs)
		if err != nil || entries[0].State != want || entries[1].State != driver.Held {
			t.Errorf("Renew of what is %s: %v, %v, want %v", name, entries, err, want)
		}
	}
	end := func(name, owner string, keep time.Duration) error {
		_, err := other.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: owner, Keep: keep})
		return err
	}
	for name, change := range map[string]func(name string) error{
		"broken": func(name string) error { _, err := other.Break(t.Context(), name, 0); return err },
		"ended":  func(name string) error { return end(name, "owner", 0) },
		"kept":   func(name string) error { return end(name, "owner", time.Hour) },
		"deleted": func(name string) error {
			_, err := other.client.Delete(t.Context(), s.entriesKey(name)+"0")
			return err
		},
		"of another entry by now": func(name string) error {
			_, err := other.Break(t.Context(), name, 0)
			grant(t, s.Store, driver.Request{Name: name, Owner: "next", TTL: time.Hour})
			return err
		},
		"of the owner, by another Store": func(name string) error {
			_, err := other.Break(t.Context(), name, 0)
			grant(t, other.Store, driver.Request{Name: name, Owner: "owner", TTL: time.Hour})
			return err
		},
		"renewed and broken": func(name string) error {
			renewedAs(t, other.Store, name, "owner", time.Hour, 0)
			_, err := other.Break(t.Context(), name, 0)
			return err
		},
	} {
		grant(t, s.Store, driver.Request{Name: name, Owner: "owner", TTL: time.Hour})
		s.mu.Lock()
		e := s.entries[[2]string{name, "owner"}]
		e.unwatch()
		e.unwatch = func() {} // It has a watch that shows nothing.
		s.mu.Unlock()
		renew(s.Store, name, driver.Held)
		must(t, change(name))
		renew(s.Store, name, driver.Lost)
	}
}

// A place that is made just before or after the Break of the hold before it has the lease of a
// place, and is told that it holds. One that ends at the same revision as the hold before it is
// lost by the Renew that follows the notice.
func testEndsTogether(t *testing.T, member *servers.Etcd) {
	s, other := openObserved(t, member), open(t, member)
	notices := noticesOf(s.Store)
	place := driver.Request{Name: "name", Owner: "waiter", TTL: time.Hour, Place: time.Minute}
	for _, isBefore := range []bool{true, false} {
		grant(t, other, request(fmt.Sprint("owner ", isBefore), time.Hour))
		changes := 0
		s.onChange(func(ctx context.Context, _ *pb.TxnRequest, send func(context.Context) error) error {
			if changes++; changes == 2 && isBefore {
				defer func() { _, _ = other.Break(t.Context(), "name", 0) }()
			} else if changes == 2 {
				_, err := other.Break(t.Context(), "name", 0)
				must(t, err)
			}
			return send(ctx)
		})
		if res, err := s.Acquire(t.Context(), place); err != nil || !res.Waiting {
			t.Fatalf("Acquire: %+v, %v, want a place", res, err)
		}
		if n := receive(t, notices); n.owner != "waiter" || n.token == 0 {
			t.Errorf("the notice %+v, want the grant", n)
		}
		release(t, s.Store, "waiter")
	}
	grant(t, other, request("owner", time.Hour))
	waitFor(t, s.Store, "name", "next")
	_, err := s.client.Delete(t.Context(), s.entriesKey("name"), clientv3.WithPrefix())
	must(t, err)
	for n := receive(t, notices); n.owner != "next"; n = receive(t, notices) {
	}
	if state := renewed(t, s.Store, "next", time.Minute, 0); state != driver.Lost {
		t.Errorf("Renew: %v, want Lost", state)
	}
}

// A store whose client was closed refuses all calls.
func testClientClosed(t *testing.T, member *servers.Etcd) {
	client := directClient(t, member)
	s := New(client, nil)
	must(t, client.Close())
	for verb, call := range storecheck.Calls(s, request("owner", time.Minute)) {
		if err := call(t.Context()); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", verb, err)
		}
	}
}

// A request without a deadline ends, with the reason, before "holdfast ls" gives up.
func testNoAnswer(t *testing.T, member *servers.Etcd) {
	s := openObserved(t, member)
	s.proxies[0].Hold(faultproxy.Down)
	began := time.Now()
	_, err := s.Lookup(context.Background(), "name")
	if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 10*time.Second {
		t.Errorf("Lookup: %v after %v", err, took)
	}
}

// A gatedWatcher passes nothing on before its gate is open.
type gatedWatcher struct {
	clientv3.Watcher
	gate chan struct{}
}

func (w gatedWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	events := w.Watcher.Watch(ctx, key, opts...)
	passed := make(chan clientv3.WatchResponse)
	go func() {
		defer close(passed)
		select {
		case <-w.gate:
		case <-ctx.Done():
			return
		}
		for resp := range events {
			select {
			case passed <- resp:
			case <-ctx.Done():
				return
			}
		}
	}()
	return passed
}

// A hold that a renewal has found before the watch of its place is watched when that has told.
func testWatchBehindARenewal(t *testing.T, member *servers.Etcd) {
	s, other := open(t, member), open(t, member)
	gate := make(chan struct{})
	s.client.Watcher = gatedWatcher{s.client.Watcher, gate}
	c := holdfast.New(s, &holdfast.Config{Hooks: holdfast.Hooks{Event: func(_ context.Context, e holdfast.Event) {
		if e.Kind == holdfast.EventWaiting {
			go release(t, other, "first")
		}
	}}})
	defer c.Close()
	grant(t, other, driver.Request{Name: "name", Owner: "first", TTL: time.Hour})
	lock, err := c.Acquire(t.Context(), "name", &holdfast.Options{TTL: time.Hour, NoRenew: true})
	must(t, err)
	close(gate)
	if ended, err := other.Break(t.Context(), "name", 0); err != nil || len(ended) != 1 {
		t.Fatal(ended, err)
	}
	select {
	case <-lock.Context().Done():
	case <-time.After(20 * time.Second):
		t.Error("the holder is not told of the Break")
	}
}

// What is certain of a lease counts from before its first request, whose reply is lost, and not
// from the wall clock, which may have been set back. There is no second lease, and none that is
// asked for again at once is kept alive. A request for another TTL that hangs delays nothing.
func testCertain(t *testing.T, member *servers.Etcd) {
	s := openObserved(t, member)
	hangs, goOn := make(chan bool, 1), make(chan bool)
	defer close(goOn)
	var sent []time.Time
	ids := map[int64]bool{}
	late := func(ctx context.Context, req any, send func(context.Context) error) error {
		r := req.(*pb.LeaseGrantRequest)
		if r.TTL == 1 {
			hangs <- true
			<-goOn
		}
		sent, ids[r.ID] = append(sent, time.Now()), true
		defer time.Sleep(200 * time.Millisecond)
		if err := send(ctx); err != nil || len(sent) > 1 {
			return err
		}
		return status.Error(codes.Unavailable, "the reply was lost")
	}
	s.onUnary.Store(&late)
	go func() { _, _ = s.leaseFor(t.Context(), 1, time.Now()) }()
	receive(t, hangs)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		defer cancel()
		l, err := s.leaseFor(ctx, leaseSeconds(time.Minute), apart(time.Now().Add(time.Minute+time.Hour), time.Hour))
		must(t, err)
		if latest := sent[0].Add(61 * time.Second); len(sent) > 2 || len(ids) > 1 || !ids[int64(l.id)] || l.certain.After(latest) {
			t.Errorf("%d requests for the leases %v; one is certain %v longer than the first allows", len(sent), ids, l.certain.Sub(latest))
		}
	}
}

// apart returns a time by whose monotonic clock it is earlier by d.
func apart(t time.Time, d time.Duration) time.Time {
	*(*time.Duration)(unsafe.Add(unsafe.Pointer(&t), 8)) -= d
	return t
}

// A lease may have ended while the system was suspended, and one clock stood still.
func TestLeaseEndsDuringASuspend(t *testing.T) {
	const suspended = time.Hour
	before := time.Now()
	after := apart(before.Add(suspended+time.Second), suspended)
	for lasts, want := range map[time.Duration]bool{time.Minute: false, 2 * suspended: true, 0: false} {
		if l := (&lease{certain: before.Add(lasts)}); l.lasts(after) != want {
			t.Errorf("a lease that lasts %v: %v after the suspend, want %v", lasts, !want, want)
		}
	}
	if l := (&lease{certain: after}); !l.lasts(before) || l.lasts(before.Add(time.Minute)) {
		t.Error("the monotonic clock does not count")
	}
}

// Mixtures of limits and orders of ends, of holds and of places, have the holds that the rule has,
// and each place that becomes one is notified, by two Stores: that it holds, or to look.
func testRule(t *testing.T, member *servers.Etcd) {
	stores := []*Store{open(t, member), open(t, member)}
	holds := make(chan string, 100)
	for _, s := range stores {
		s.Notify(func(name, owner string, token int64) {
			go func() {
				entries := []driver.Entry{{State: driver.Held}}
				if token == 0 { // An entry that is ended meanwhile may have an error.
					entries, _ = s.Renew(t.Context(), []driver.RenewRequest{{Name: name, Owner: owner, TTL: time.Hour}})
				}
				if entries[0].State == driver.Held {
					holds <- owner
				}
			}()
		})
	}
	const n = 6
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		var queue lockqueue.Queue[int]
		var history []string
		for i := range n {
			req := driver.Request{Name: fmt.Sprint(seed), Owner: fmt.Sprint(i), TTL: time.Hour, Place: time.Hour}
			req.Limit = []int{0, 2, 3, driver.Shared}[random.IntN(4)]
			history = append(history, fmt.Sprint("limit ", req.Limit))
			res, err := stores[i%2].Acquire(t.Context(), req)
			must(t, err)
			if want, _, _ := queue.Acquire(&req, 0, 0, &lockqueue.Counter{Last: int64(i)}); res.Granted != (want.State == driver.Held) {
				t.Fatalf("%v: %+v, want %v", history, res, want.State)
			}
		}
		for _, i := range random.Perm(n) {
			history = append(history, fmt.Sprint("end ", i))
			_, err := stores[i%2].Release(t.Context(), driver.ReleaseRequest{Name: fmt.Sprint(seed), Owner: fmt.Sprint(i)})
			must(t, err)
			var want, got []string
			_, promoted := queue.Release(fmt.Sprint(i), 0, 0)
			for _, e := range promoted {
				want = append(want, e.Owner)
			}
			for range want {
				got = append(got, receive(t, holds))
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Fatalf("%v: %v, want %v", history, got, want)
			}
		}
	}
}

// A cluster that has lost its disks grants a name that is held. The token of the second holder is
// greater, the first is lost by its next renewal, and its Store ends nothing of the second.
func TestForgetfulCluster(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	s, other := open(t, member), open(t, member)
	swept := driver.Request{Name: "swept", Owner: "owner", TTL: time.Hour}
	first := grant(t, s, request("owner", time.Hour))
	grant(t, s, swept)
	member.RestartEmpty()
	var second driver.Result
	eventually(t, "grant by the empty cluster", func() bool {
		var err error
		second, err = other.Acquire(t.Context(), request("other", time.Hour))
		return err == nil && second.Granted
	})
	if second.Token <= first.Token {
		t.Errorf("the token %d follows %d", second.Token, first.Token)
	}
	if state := renewed(t, s, "owner", time.Hour, first.Token); state != driver.Lost {
		t.Errorf("Renew: %v, want Lost", state)
	}
	swept.Owner = "other"
	second = grant(t, other, swept) // at the revision of the first
	s.mu.Lock()
	s.entries[[2]string{"swept", "owner"}].until = time.Time{}
	s.mu.Unlock()
	eventually(t, "sweep", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.entries) == 0
	})
	if holds, err := other.Lookup(t.Context(), "swept"); err != nil || len(holds) != 1 || holds[0].Token != second.Token {
		t.Errorf("Lookup: %v, %v, want it held", holds, err)
	}
	grant(t, s, driver.Request{Name: "another", Owner: "owner", TTL: time.Hour}) // with a lease of the empty cluster
}

// A hold that a restored snapshot does not have is lost, though an earlier entry of the Store has
// its key and its lease again. That one ends: the Store leaves the lease.
func TestRestoredSnapshot(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	s := open(t, member)
	grant(t, s, driver.Request{Name: "beside", Owner: "owner", TTL: time.Hour})
	grant(t, s, request("first", time.Hour))
	restore := member.Snapshot()
	eventually(t, "release", func() bool {
		_, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "first"})
		return err == nil
	})
	second := grant(t, s, request("second", time.Hour))
	renew := func(want driver.State) {
		t.Helper()
		var entries []driver.Entry
		eventually(t, "Renew", func() (ok bool) {
			var err error
			entries, err = s.Renew(t.Context(), []driver.RenewRequest{
				{Name: "name", Owner: "second", TTL: time.Hour}, {Name: "beside", Owner: "owner", TTL: time.Hour}})
			return err == nil
		})
		if entries[0].State != want || entries[1].State != driver.Held {
			t.Errorf("Renew: %v, want %v and Held", entries, want)
		}
	}
	renew(driver.Held)
	restore()
	renew(driver.Lost)
	resp, err := s.client.Txn(t.Context()).If(s.Held(lockOf{second.Token})).Commit()
	if must(t, err); resp.Succeeded {
		t.Error("the condition of a hold that is lost holds")
	}
	renew(driver.Lost)
	var leases []int64
	for _, name := range []string{"name", "beside"} {
		resp, err := s.client.Get(t.Context(), s.entriesKey(name)+"0")
		must(t, err)
		leases = append(leases, resp.Kvs[0].Lease)
	}
	if leases[0] == leases[1] {
		t.Error("the entry that is there again has the lease of one that is renewed")
	}
}

// A cluster without space grants nothing, which it does not report as held, and still renews and
// releases. A lease whose time is over costs no renewal of what has another one. A hold that came
// by its turn is not prolonged beyond the time of its place.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	s := open(t, servers.StartEtcd(t, "--quota-backend-bytes", "2097152"))
	held := grant(t, s, request("owner", time.Hour))
	waiter := driver.RenewRequest{Name: "name", Owner: "waiter", TTL: time.Minute}
	if res, err := s.Acquire(t.Context(), driver.Request{Name: "name", Owner: "waiter", TTL: time.Hour, Place: waiter.TTL}); !res.Waiting {
		t.Fatalf("Acquire: %+v, %v, want a place", res, err)
	}
	short := driver.Request{Name: "short", Owner: "owner", TTL: time.Second}
	grant(t, s, short)
	_, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "short", Owner: "owner"})
	must(t, err)
	for i := 0; ; i++ {
		_, err := s.client.Put(t.Context(), "filling", strings.Repeat("x", 100_000))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			break
		}
		if must(t, err); i == 1000 {
			t.Fatal("the space is not used up")
		}
	}
	eventually(t, "end of the short lease", func() bool {
		resp, err := s.client.Leases(t.Context())
		return err == nil && len(resp.Leases) == 2
	})
	for _, req := range []driver.Request{request("other", time.Hour), {Name: "free", Owner: "owner", TTL: time.Hour}, short} {
		if res, err := s.Acquire(t.Context(), req); !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Errorf("Acquire of %q: %+v, %v, want ErrNoSpace", req.Name, res, err)
		}
		if released, err := s.Release(t.Context(), driver.ReleaseRequest{Name: req.Name, Owner: req.Owner}); released || err != nil {
			t.Errorf("Release of %q: %v, %v", req.Name, released, err)
		}
	}
	if state := renewed(t, s, "owner", time.Hour, held.Token); state != driver.Held {
		t.Errorf("Renew: %v, want Held", state)
	}
	release(t, s, "owner")
	for _, waiter.TTL = range []time.Duration{time.Minute, time.Hour} {
		entries, err := s.Renew(t.Context(), []driver.RenewRequest{waiter})
		if isLonger := waiter.TTL == time.Hour; errors.Is(err, rpctypes.ErrNoSpace) != isLonger || (entries[0].State == driver.Held) == isLonger {
			t.Errorf("Renew for %v: %v, %v", waiter.TTL, entries, err)
		}
	}
	release(t, s, "waiter")
	if holds, err := s.Lookup(t.Context(), "name"); len(holds) > 0 || err != nil {
		t.Errorf("Lookup: %v, %v, want the name free", holds, err)
	}
}

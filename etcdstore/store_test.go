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
	"github.com/holdfast-go/holdfast/internal/lockqueue"
	"github.com/holdfast-go/holdfast/internal/servers"
	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// open opens a store whose names no other test has.
func open(t *testing.T, cluster ...*servers.Etcd) *Store { return openClient(t, dial(t, cluster)) }

func openClient(t *testing.T, c *client) *Store {
	s := New(c.Client, &Options{Prefix: t.Name() + "/"})
	s.writes.Bound, s.reads.Bound = patient, patient
	t.Cleanup(func() { _ = s.Close() })
	return s
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

func must(t *testing.T, err error) {
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

// waitFor has an owner wait for a name.
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

func wantFree(t *testing.T, s *Store) {
	t.Helper()
	if holds, err := s.Lookup(t.Context(), "name"); len(holds) > 0 || err != nil {
		t.Errorf("Lookup: %v, %v, want the name free", holds, err)
	}
}

// wantHeld wants the name held for d at least.
func wantHeld(t *testing.T, s *Store, d time.Duration) {
	t.Helper()
	if holds, err := s.Lookup(t.Context(), "name"); err != nil || len(holds) != 1 || holds[0].Remaining < d {
		t.Errorf("Lookup: %v, %v, want it held for %v", holds, err, d)
	}
}

// eventually returns when done reports true.
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

// noticesOf returns the notices of a store.
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

// stopWatch ends the watch of a hold before its first look, until the next Renew.
func (o *observed) stopWatch(name, owner string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.entries[[2]string{name, owner}].stopWatch()
}

// TestOneMember has what one member suffices for.
func TestOneMember(t *testing.T) {
	t.Parallel()
	member := servers.StartEtcd(t)
	for name, test := range map[string]func(t *testing.T, member *servers.Etcd){
		"request that arrives after its release": testLateRequest,
		"unrenewed entry":                        testUnrenewedEntry,
		"deleted keys":                           testDeletedKeys,
		"reader beside others":                   testReaderBesideOthers,
		"lost lease":                             testLostLease,
		"rule":                                   testRule,
		"fence":                                  testFence,
		"late keep":                              testLateKeep,
		"renewal that is refused":                testRefusedRenewal,
		"renewal that gets lost":                 testLostRenewal,
		"renewal by another store":               testOtherRenewal,
		"renewal during the sweep":               testRenewalDuringTheSweep,
		"client closed":                          testClientClosed,
		"certain from the sending":               testCertain,
		"base that is not known":                 testUnknownBase,
		"look after a lost lease":                testLookAfterALostLease,
		"late move":                              testLateMove,
		"change by others":                       testChangeByOthers,
		"release in doubt":                       testReleaseInDoubt,
		"ends together":                          testEndsTogether,
		"other renewal of a hold in doubt":       testOtherRenewalInDoubt,
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

// An entry that is not renewed ends, though another one has its lease kept alive. One that another
// Store has renewed stays.
func testUnrenewedEntry(t *testing.T, member *servers.Etcd) {
	const ttl = 2 * time.Second
	s, other := open(t, member), open(t, member)
	for _, name := range []string{"unrenewed", "adopted", "left", "renewed"} {
		req := request("owner", ttl)
		req.Name = name
		grant(t, s, req)
	}
	req := request("owner", 3*ttl) // It is brought back to a shorter time.
	req.Name = "taken back"
	grant(t, s, req)
	renew := func(s *Store, name string) {
		t.Helper()
		if state := renewedAs(t, s, name, "owner", ttl, 0); state != driver.Held {
			t.Fatalf("Renew of %q: %v", name, state)
		}
	}
	renew(other, "left")
	renew(other, "taken back")
	for end := time.Now().Add(ttl + grain); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		renew(s, "renewed")
		renew(s, "taken back")
		renew(other, "adopted")
	}
	for _, name := range []string{"unrenewed", "left"} {
		if holds, err := s.Lookup(t.Context(), name); len(holds) > 0 || err != nil {
			t.Errorf("Lookup: %v, %v, want %q free", holds, err, name)
		}
	}
	for _, s := range []*Store{s, other} {
		eventually(t, "end of all entries but those that are renewed", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.entries) <= 2
		})
	}
}

// When somebody deletes all keys of the prefix, tokens rise, whichever Store is first.
func testDeletedKeys(t *testing.T, member *servers.Etcd) {
	s, other := open(t, member), open(t, member)
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
	_, err := other.client.Delete(t.Context(), t.Name()+"/", clientv3.WithPrefix())
	must(t, err)
	fresh := open(t, member)
	for _, s := range []*Store{fresh, other, s} {
		hold(s)
	}
}

// A reader is granted a name however many others come before each of its transactions. It waits if
// one that it must not overtake has come since it has read the queue.
func testReaderBesideOthers(t *testing.T, member *servers.Etcd) {
	s, other := openObserved(t, member), open(t, member)
	reader := request("reader", time.Hour)
	reader.Limit, reader.Place = driver.Shared, time.Minute
	beside, others := reader, 0
	s.onChange(func(ctx context.Context, _ *pb.TxnRequest, send func(context.Context) error) error {
		others++
		beside.Owner = fmt.Sprint("before ", others)
		if res, err := other.Acquire(ctx, beside); err != nil || !res.Granted && !res.Waiting {
			t.Errorf("Acquire: %+v, %v", res, err)
		}
		if beside.Name == "writer" {
			beside.Limit = 0
		}
		return send(ctx)
	})
	grant(t, s.Store, reader)
	reader.Name, beside.Name = "writer", "writer"
	if res, err := s.Acquire(t.Context(), reader); err != nil || !res.Waiting {
		t.Errorf("Acquire behind a writer that waits: %+v, %v, want a place", res, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := time.Until(s.entries[[2]string{"writer", "reader"}].until); left > reader.Place {
		t.Errorf("a place for %v lasts %v", reader.Place, left)
	}
}

// When a lease has ended on the server, or somebody has deleted the key of a hold, the owner is
// told and finds it lost, and others are granted the name.
func testLostLease(t *testing.T, member *servers.Etcd) {
	s := open(t, member)
	notices := noticesOf(s)
	for what, lose := range map[string]func() error{
		"lease": func() error {
			_, err := s.client.Revoke(t.Context(), s.leases[leaseSeconds(time.Minute)].id)
			return err
		},
		"key": func() error {
			_, err := s.client.Delete(t.Context(), s.entriesKey("name"), clientv3.WithPrefix())
			return err
		},
	} {
		first := grant(t, s, request("owner", time.Minute))
		if state := renewed(t, s, "owner", time.Minute, 0); state != driver.Held {
			t.Errorf("Renew: %v, want Held", state)
		}
		time.Sleep(2 * watchDelay) // or it is told a moment later
		must(t, lose())
		for n := receive(t, notices); n.owner != "owner" || n.token != 0; n = receive(t, notices) {
		}
		if state := renewed(t, s, "owner", time.Minute, first.Token); state != driver.Lost {
			t.Errorf("Renew without the %s: %v, want Lost", what, state)
		}
		if second := grant(t, s, request("next", time.Minute)); second.Token <= first.Token {
			t.Errorf("the token %d follows %d", second.Token, first.Token)
		}
		release(t, s, "next")
	}
}

// A transaction with the condition of a hold changes nothing when the hold is over: released,
// broken, or kept.
func testFence(t *testing.T, member *servers.Etcd) {
	s, other := open(t, member), open(t, member)
	c := holdfast.New(s, nil)
	defer c.Close()
	for what, end := range map[string]func(*holdfast.Lock) error{
		"released": (*holdfast.Lock).Release,
		"broken": func(lock *holdfast.Lock) error {
			_, err := other.Break(t.Context(), lock.Name(), lock.Token())
			return err
		},
		"kept": func(lock *holdfast.Lock) error { return lock.ReleaseKeep(time.Hour) },
	} {
		lock, err := c.Acquire(t.Context(), what, nil)
		must(t, err)
		isHeld := s.Held(lock)
		commits := func() bool {
			resp, err := s.client.Txn(t.Context()).If(isHeld).Then(clientv3.OpPut("data", what)).Commit()
			must(t, err)
			return resp.Succeeded
		}
		if !commits() {
			t.Errorf("%s: a transaction of the holder changes nothing", what)
		}
		must(t, end(lock))
		if commits() {
			t.Errorf("%s: a transaction after the hold changes something", what)
		}
		_ = lock.Release()
		isHeld = s.Held(lock)
		if commits() {
			t.Errorf("%s: the condition of a lock that is over holds", what)
		}
	}
	grant(t, s, request("owner", time.Hour))
	place := waitFor(t, s, "name", "waiter")
	resp, err := s.client.Txn(t.Context()).If(s.Held(lockOf{place.Token})).Commit()
	if must(t, err); resp.Succeeded {
		t.Error("the condition of a place holds")
	}
}

// A lockOf is the lock with a token.
type lockOf struct{ token int64 }

func (l lockOf) Name() string { return "name" }
func (l lockOf) Token() int64 { return l.token }

// A Release with a keep that arrives after its repetition was confirmed changes nothing. One that
// finds the hold renewed meanwhile keeps it as it is then.
func testLateKeep(t *testing.T, member *servers.Etcd) {
	s, other := openObserved(t, member), open(t, member)
	grant(t, s.Store, request("owner", time.Hour))
	keep := func(d time.Duration) (bool, error) {
		return s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "owner", Keep: d})
	}
	var late *pb.TxnRequest
	s.onChange(func(ctx context.Context, txn *pb.TxnRequest, send func(context.Context) error) error {
		late = txn
		return status.Error(codes.Unavailable, "the request was lost")
	})
	if released, err := keep(time.Minute); err == nil || driver.IsNotApplied(err) {
		t.Fatalf("Release: %v, %v, want it in doubt", released, err)
	}
	s.onChange(func(ctx context.Context, _ *pb.TxnRequest, send func(context.Context) error) error {
		renewed(t, other, "owner", 2*time.Hour, 0)
		return send(ctx)
	})
	if released, err := keep(time.Minute); !released || err != nil {
		t.Errorf("Release beside a Renew: %v, %v", released, err)
	}
	s.onUnary.Store(nil)
	if released, err := keep(time.Hour); !released || err != nil {
		t.Fatalf("Release again: %v, %v", released, err)
	}
	_, err := clientv3.RetryKVClient(s.client.Client).Txn(t.Context(), late)
	must(t, err)
	holds, err := s.Lookup(t.Context(), "name")
	if err != nil || len(holds) != 1 || !holds[0].Kept || holds[0].Holder != "" || holds[0].Remaining < 30*time.Minute {
		t.Errorf("%v, %v, want it kept for an hour, without a holder", holds, err)
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
// the reply was lost, keeps it for no longer than was requested. An entry that is not known when
// the Store cannot look is forgotten.
func testLostRenewal(t *testing.T, member *servers.Etcd) {
	s := openObserved(t, member)
	held := grant(t, s.Store, request("owner", 3*time.Second))
	lose := func(ctx context.Context, req any, send func(context.Context) error) error {
		if txn, ok := req.(*pb.TxnRequest); ok && mayChangeEntry(txn) || strings.Contains(fmt.Sprint(req), "/lock/unknown") {
			return status.Error(codes.Internal, "the request was lost")
		}
		return send(ctx)
	}
	s.onUnary.Store(&lose)
	for _, req := range []driver.RenewRequest{{Name: "name", Owner: "owner", Token: held.Token, TTL: time.Hour}, {Name: "unknown", Owner: "owner", TTL: driver.MinTTL}} {
		if entries, err := s.Renew(t.Context(), []driver.RenewRequest{req}); err == nil || entries[0].State != driver.Unknown {
			t.Errorf("Renew of %q: %v, %v, want it in doubt", req.Name, entries, err)
		}
	}
	s.onUnary.Store(nil)
	if state := renewed(t, s.Store, "owner", time.Minute, held.Token); state != driver.Held {
		t.Errorf("Renew: %v", state)
	}
	wantHeld(t, s.Store, 50*time.Second)
	moved := driver.Request{Name: "moved", Owner: "owner", TTL: driver.MinTTL}
	grant(t, s.Store, moved)
	s.stopWatch(moved.Name, moved.Owner)
	s.onChange(func(ctx context.Context, _ *pb.TxnRequest, send func(context.Context) error) error {
		must(t, send(ctx))
		return status.Error(codes.Unavailable, "the reply was lost")
	})
	_, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: moved.Name, Owner: moved.Owner, TTL: 2100 * time.Millisecond}})
	if err == nil {
		t.Error("Renew succeeds without a reply")
	}
	s.onUnary.Store(nil)
	eventually(t, "end of all entries but the one that is renewed", func() bool {
		l, err := s.leaseFor(t.Context(), leaseSeconds(1100*time.Millisecond), time.Now().Add(1100*time.Millisecond)) // as for another entry
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

// A renewal that arrives late takes no hold from the lease of a later one, which asked for more.
func testLateMove(t *testing.T, member *servers.Etcd) {
	s := openObserved(t, member)
	held := grant(t, s.Store, request("owner", time.Minute))
	var late *pb.TxnRequest
	s.onChange(func(_ context.Context, txn *pb.TxnRequest, _ func(context.Context) error) error {
		late = txn
		return status.Error(codes.Unavailable, "it takes long")
	})
	short := driver.RenewRequest{Name: "name", Owner: "owner", Token: held.Token, TTL: 2 * time.Minute}
	if entries, err := s.Renew(t.Context(), []driver.RenewRequest{short}); err == nil || late == nil {
		t.Fatalf("Renew: %v, %v, want it in doubt", entries, err)
	}
	s.onUnary.Store(nil)
	if state := renewed(t, s.Store, "owner", time.Hour, held.Token); state != driver.Held {
		t.Fatalf("Renew: %v", state)
	}
	_, err := clientv3.RetryKVClient(s.client.Client).Txn(t.Context(), late)
	must(t, err)
	wantHeld(t, s.Store, 50*time.Minute)
}

// When a lease has ended on the server, the looks that follow shorten no hold that has another.
func testLookAfterALostLease(t *testing.T, member *servers.Etcd) {
	s := open(t, member)
	grant(t, s, request("owner", time.Hour)) // as one with NoRenew
	lost := driver.Request{Name: "lost", Owner: "owner", TTL: time.Minute}
	grant(t, s, lost)
	s.mu.Lock()
	l := s.leases[leaseSeconds(time.Minute)]
	s.mu.Unlock()
	_, err := s.client.Revoke(t.Context(), l.id)
	must(t, err)
	if state := renewed(t, s, "owner", driver.MinTTL, 0); state != driver.Held {
		t.Errorf("Renew: %v, want Held", state)
	}
	s.mu.Lock()
	l.certain = time.Now().Add(time.Second) // so that it is kept alive
	s.mu.Unlock()
	lost.Name = "next"
	grant(t, s, lost)
	if state := renewed(t, s, "owner", driver.MinTTL, 0); state != driver.Held {
		t.Errorf("Renew: %v, want Held", state)
	}
	wantHeld(t, s, 50*time.Minute)
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

// After a Release or a keep in doubt a renewal tells whether it was applied. If it was not, it ends
// nothing that is renewed, however late it arrives.
func testReleaseInDoubt(t *testing.T, member *servers.Etcd) {
	s := openObserved(t, member)
	for _, keep := range []time.Duration{0, time.Hour} {
		for _, want := range []driver.State{driver.Held, driver.Lost} {
			name := fmt.Sprint(keep, want)
			renew := func(want driver.State) {
				t.Helper()
				if state := renewedAs(t, s.Store, name, "owner", time.Hour, 0); state != want {
					t.Errorf("Renew after a keep for %v: %v, want %v", keep, state, want)
				}
			}
			grant(t, s.Store, driver.Request{Name: name, Owner: "owner", TTL: time.Hour})
			renew(driver.Held)
			renew(driver.Held)
			var late *pb.TxnRequest
			s.onChange(func(ctx context.Context, txn *pb.TxnRequest, send func(context.Context) error) error {
				if late = txn; want == driver.Lost {
					must(t, send(ctx))
				}
				return status.Error(codes.Unavailable, "the reply was lost")
			})
			req := driver.ReleaseRequest{Name: name, Owner: "owner", Keep: keep}
			if ended, err := s.Release(t.Context(), req); err == nil || driver.IsNotApplied(err) {
				t.Fatalf("Release: %v, %v, want it in doubt", ended, err)
			}
			s.onUnary.Store(nil)
			renew(want)
			_, err := clientv3.RetryKVClient(s.client.Client).Txn(t.Context(), late)
			must(t, err)
			holds, err := s.Lookup(t.Context(), name)
			if isHeld := len(holds) == 1 && !holds[0].Kept; err != nil || isHeld != (want == driver.Held) {
				t.Errorf("Lookup after a late keep for %v: %v, %v, want %v", keep, holds, err, want)
			}
		}
	}
}

// A place that comes together with the Break of the hold before it is told that it holds, and one
// that ends at the same revision as the hold before it, that it does not.
func testEndsTogether(t *testing.T, member *servers.Etcd) {
	s, other := openObserved(t, member), open(t, member)
	notices := noticesOf(s.Store)
	grant(t, s.Store, request("owner", time.Hour))
	s.stopWatch("name", "owner")
	changes := 0
	s.onChange(func(ctx context.Context, _ *pb.TxnRequest, send func(context.Context) error) error {
		err := send(ctx)
		if changes++; changes == 2 { // It has its place, and does not know.
			_, breakErr := other.Break(t.Context(), "name", 0)
			must(t, breakErr)
		}
		return err
	})
	waitFor(t, s.Store, "name", "waiter")
	if n := receive(t, notices); n.owner != "waiter" || n.token == 0 {
		t.Errorf("the notice %+v, want the grant", n)
	}
	waitFor(t, s.Store, "name", "next")
	_, err := s.client.Delete(t.Context(), s.entriesKey("name"), clientv3.WithPrefix())
	must(t, err)
	for n := receive(t, notices); n.owner != "next" || n.token != 0; n = receive(t, notices) {
	}
}

// A hold that another Store renews stays, also when its own Store is about to end it; and it is not
// shortened.
func testOtherRenewal(t *testing.T, member *servers.Etcd) {
	s, other := openObserved(t, member), open(t, member)
	held := grant(t, s.Store, request("owner", driver.MinTTL))
	lease := s.entries[[2]string{"name", "owner"}].record.lease()
	for _, store := range []*Store{s.Store, other} { // It prolongs nothing.
		if state := renewed(t, store, "owner", time.Hour, held.Token+1); state != driver.Lost {
			t.Errorf("Renew of another token: %v, want Lost", state)
		}
	}
	var isRenewed atomic.Bool
	s.onChange(func(ctx context.Context, _ *pb.TxnRequest, send func(context.Context) error) error {
		if !isRenewed.Load() {
			if state := renewed(t, other, "owner", time.Hour, held.Token); state != driver.Held {
				t.Errorf("Renew: %v", state)
			}
			isRenewed.Store(true)
		}
		return send(ctx)
	})
	eventually(t, "end by the first Store", func() bool {
		_, err := s.client.KeepAliveOnce(t.Context(), lease) // as for another entry
		must(t, err)
		s.mu.Lock()
		defer s.mu.Unlock()
		return isRenewed.Load() && len(s.entries) == 0
	})
	for _, store := range []*Store{s.Store, other} {
		if state := renewed(t, store, "owner", time.Minute, held.Token); state != driver.Held {
			t.Errorf("Renew: %v", state)
		}
		wantHeld(t, store, 50*time.Minute)
	}
}

// A hold that another Store renews stays, though its own Store has no answer of its Acquire.
func testOtherRenewalInDoubt(t *testing.T, member *servers.Etcd) {
	s, other := openObserved(t, member), open(t, member)
	s.onChange(func(ctx context.Context, _ *pb.TxnRequest, send func(context.Context) error) error {
		must(t, send(ctx))
		return status.Error(codes.Unavailable, "the reply was lost")
	})
	if res, err := s.Acquire(t.Context(), request("owner", driver.MinTTL)); err == nil {
		t.Errorf("Acquire: %+v, want it in doubt", res)
	}
	s.onUnary.Store(nil)
	if state := renewed(t, other, "owner", time.Hour, 0); state != driver.Held {
		t.Errorf("Renew: %v, want Held", state)
	}
	eventually(t, "end by the first Store", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.entries) == 0
	})
	release(t, other, "owner")
}

// A hold that its Store has renewed at last, while it was about to end it, stays, and stays known:
// its owner is notified of its end. So is one that it has renewed while it looked what became of
// it.
func testRenewalDuringTheSweep(t *testing.T, member *servers.Etcd) {
	for _, looks := range []bool{false, true} {
		s, other := openObserved(t, member), open(t, member)
		held := grant(t, s.Store, request("owner", driver.MinTTL))
		s.stopWatch("name", "owner")
		if state := renewed(t, other, "owner", time.Hour, held.Token); state != driver.Held {
			t.Errorf("Renew: %v", state)
		}
		var hasEnded, isRenewed atomic.Bool
		swept := make(chan struct{})
		onUnary := func(ctx context.Context, req any, send func(context.Context) error) error {
			txn, ok := req.(*pb.TxnRequest)
			if ok && mayChangeEntry(txn) {
				hasEnded.Store(true)
			}
			var err error
			if looks {
				err = send(ctx)
			}
			if ok && hasEnded.Load() && mayChangeEntry(txn) != looks && strings.Contains(fmt.Sprint(txn), "lock/name") &&
				!isRenewed.Swap(true) {
				if state := renewed(t, s.Store, "owner", time.Hour, held.Token); state != driver.Held {
					t.Errorf("Renew: %v", state)
				}
				close(swept)
			}
			if !looks {
				err = send(ctx)
			}
			return err
		}
		s.onUnary.Store(&onUnary)
		receive(t, swept)
		notices := noticesOf(s.Store)
		time.Sleep(2 * watchDelay)
		ended, err := other.Break(t.Context(), "name", 0)
		if len(ended) != 1 || err != nil {
			t.Errorf("Break: %v, %v, want it held", ended, err)
		}
		if n := receive(t, notices); n.owner != "owner" || n.token != 0 {
			t.Errorf("the notice %+v", n)
		}
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

// What is certain of a lease counts from before its request, not from the reply.
func testCertain(t *testing.T, member *servers.Etcd) {
	s := openObserved(t, member)
	var sent time.Time
	late := func(ctx context.Context, req any, send func(context.Context) error) error {
		if _, ok := req.(*pb.LeaseGrantRequest); ok {
			sent = time.Now()
			defer time.Sleep(200 * time.Millisecond)
		}
		return send(ctx)
	}
	s.onUnary.Store(&late)
	l, err := s.leaseFor(t.Context(), leaseSeconds(time.Minute), time.Now().Add(time.Minute))
	must(t, err)
	if latest := sent.Add(61 * time.Second); l.certain.After(latest) {
		t.Errorf("a new lease is certain %v later than its request allows", l.certain.Sub(latest))
	}
	certain := l.certain
	if again, err := s.leaseFor(t.Context(), leaseSeconds(time.Minute), time.Now().Add(time.Minute)); again != l || err != nil || !l.certain.Equal(certain) {
		t.Errorf("a lease that is asked for again at once is not the same, or kept alive: %v", err)
	}
}

// A client whose clock is ahead has the base of the tokens from the first client. A base that
// cannot be read costs no hold.
func testUnknownBase(t *testing.T, member *servers.Etcd) {
	s, other := open(t, member), open(t, member)
	s.wall = func() time.Time { return time.Now().Add(time.Hour) }
	first := grant(t, other, request("first", time.Hour))
	release(t, other, "first")
	second := grant(t, s, request("second", time.Hour))
	release(t, s, "second")
	third := grant(t, other, request("third", time.Hour))
	if first.Token >= second.Token || second.Token >= third.Token {
		t.Errorf("the tokens are %d, %d, %d", first.Token, second.Token, third.Token)
	}
	_, err := other.client.Put(t.Context(), other.baseKey, "foreign")
	must(t, err)
	if res, err := other.Acquire(t.Context(), driver.Request{Name: "free", Owner: "owner", TTL: time.Hour}); !errors.Is(err, driver.ErrCorrupt) {
		t.Errorf("Acquire: %+v, %v, want ErrCorrupt", res, err)
	}
	if state := renewed(t, other, "third", time.Hour, third.Token); state != driver.Held {
		t.Errorf("Renew: %v, want Held", state)
	}
}

// A lease may have ended while the system was suspended, and one clock stood still.
func TestLeaseEndsDuringASuspend(t *testing.T) {
	const suspended = time.Hour
	before := time.Now()
	after := before.Add(suspended + time.Second)
	*(*time.Duration)(unsafe.Add(unsafe.Pointer(&after), 8)) -= suspended // the monotonic clock
	if d := after.Sub(before); d != time.Second {
		t.Fatalf("the monotonic clock is %v later, want 1 s", d)
	}
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
// and each place that becomes one is notified, by two Stores.
func testRule(t *testing.T, member *servers.Etcd) {
	stores := []*Store{open(t, member), open(t, member)}
	notices := make(chan string, 100)
	for _, s := range stores {
		s.Notify(func(_, owner string, token int64) { notices <- fmt.Sprint(owner, " ", token > 0) })
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
				want = append(want, e.Owner+" true")
			}
			for range want {
				got = append(got, receive(t, notices))
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
// releases. A lease whose time is over costs no renewal of what has another one.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	s := open(t, servers.StartEtcd(t, "--quota-backend-bytes", "2097152"))
	held := grant(t, s, request("owner", time.Hour))
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
		return err == nil && len(resp.Leases) == 1
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
	wantFree(t, s)
}

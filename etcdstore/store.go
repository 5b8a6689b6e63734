package etcdstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// DefaultPrefix is put in front of all keys by default.
const DefaultPrefix = "holdfast/"

// Options change how a store works. The zero value and nil are the defaults.
type Options struct {
	// Prefix is put in front of all keys. "" means [DefaultPrefix]. All programs that are to exclude
	// each other need the same. It must have no control characters.
	Prefix string
}

const (
	requestBound = 3 * time.Second // of a request without a deadline
	closeBound   = time.Second     // of the revocations that Close waits for
	maxBatch     = 40              // of renewals: a server allows 128 operations in a transaction by default
)

// A Store keeps locks in etcd. See the package comment for what it promises. Its methods may be
// called from many goroutines at once.
type Store struct {
	client      *clientv3.Client
	leases      pb.LeaseClient
	ownsClient  bool // Close closes the client as well
	prefix      string
	configErr   error
	unconnected *atomic.Pointer[string] // why a client that was opened from a URL has no connection
	wall        func() time.Time        // the clock of the tokens
	alive       context.Context         // until Close
	end         context.CancelFunc
	revoking    context.Context // until the end of Close
	endRevoking context.CancelFunc
	group       sync.WaitGroup       // goroutines
	streams     chan keepAliveStream // those without a user

	mu      sync.Mutex // guards all below, and the leases
	closed  bool
	entries map[[2]string]*ownerState // by name and owner
	sweepAt int                       // the number of entries at which to look for old ones
	idle    map[int64][]*lease        // without keys, by seconds

	streamCount int // with and without users

	counters map[byte]*lease // for last tokens, by a hash of the name

	notifyMu  sync.RWMutex // locked for reading while functions are called: the end of one waits for them
	notifiers []*func(name, owner string, token int64)
}

// An ownerState is what this Store knows of a hold or place that was requested through it.
type ownerState struct {
	token    int64 // 0 if it is not known
	lease    *lease
	doubtful []*lease // of requests without a reply, which may be on their way
	endWatch context.CancelFunc
}

var _ driver.Notifier = (*Store)(nil)

// New returns a store that uses a client of the caller. Nothing is dialed. The client must stay open
// until the Store is closed; Close does not close it.
func New(client *clientv3.Client, opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{
		client: client, wall: time.Now, prefix: cmp.Or(opts.Prefix, DefaultPrefix), streams: make(chan keepAliveStream, maxStreams),
		unconnected: new(atomic.Pointer[string]),
		entries:     map[[2]string]*ownerState{}, sweepAt: 1024, idle: map[int64][]*lease{}, counters: map[byte]*lease{},
	}
	s.alive, s.end = context.WithCancel(context.Background())
	s.revoking, s.endRevoking = context.WithCancel(context.Background())
	s.streams <- keepAliveStream{}
	s.streamCount = 1
	switch {
	case client == nil:
		s.configErr = fmt.Errorf("%w: the etcd client is nil", driver.ErrInvalid)
	case strings.ContainsFunc(s.prefix, func(r rune) bool { return r < ' ' || r == 0x7f }):
		s.configErr = fmt.Errorf("%w: the prefix has a control character", driver.ErrInvalid)
	default:
		s.leases = clientv3.RetryLeaseClient(client)
	}
	return s
}

// Client returns the client of the store.
func (s *Store) Client() *clientv3.Client { return s.client }

// Guarantees implements [driver.Store].
func (s *Store) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Store:    "etcd",
		Fencing:  true,
		Queue:    true,
		Keep:     true,
		Grain:    grain,
		Crash:    driver.FateKept,
		Restart:  driver.FateKept,
		Failover: driver.FateKept,
	}
}

// Notify implements [driver.Notifier].
func (s *Store) Notify(f func(name, owner string, token int64)) (stop func()) {
	s.notifyMu.Lock()
	defer s.notifyMu.Unlock()
	s.notifiers = append(s.notifiers, &f)
	return func() {
		s.notifyMu.Lock()
		defer s.notifyMu.Unlock()
		s.notifiers = slices.DeleteFunc(s.notifiers, func(other *func(name, owner string, token int64)) bool { return other == &f })
	}
}

// notify sends a notice. The caller does not hold s.mu.
func (s *Store) notify(name, owner string, token int64) {
	s.notifyMu.RLock()
	defer s.notifyMu.RUnlock()
	for _, f := range s.notifiers {
		(*f)(name, owner, token)
	}
}

// Close implements [driver.Store]. It ends the notices, waits up to a second for the ends of leases
// that are no longer used, and closes the client if the store was opened from a URL.
func (s *Store) Close() error {
	s.endLong()
	s.mu.Lock()
	wasClosed := s.closed
	s.closed = true
	s.mu.Unlock()
	s.end()
	timer := time.AfterFunc(closeBound, s.endRevoking)
	s.group.Wait()
	timer.Stop()
	s.endRevoking()
	if wasClosed || !s.ownsClient {
		return nil
	}
	return s.client.Close()
}

// check returns the error of a call that need not begin.
func (s *Store) check(ctx context.Context, texts ...string) error {
	if s.configErr != nil {
		return s.configErr
	}
	if s.alive.Err() != nil {
		return driver.ErrClosed
	}
	if s.client.Ctx().Err() != nil {
		return fmt.Errorf("%w: the etcd client", driver.ErrClosed)
	}
	if slices.ContainsFunc(texts, func(text string) bool { return text == "" || strings.Contains(text, "\x00") }) {
		return fmt.Errorf("%w: a name or an owner is empty or has a zero byte", driver.ErrInvalid)
	}
	return driver.NotApplied(ctx.Err())
}

// goWhileOpen runs f in a goroutine that Close waits for, and returns false if the Store is closed.
func (s *Store) goWhileOpen(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.group.Go(f)
	}
	return !s.closed
}

// A name has these keys. An entry has the two of an owner and a record, which have one lease and
// come and go together.
//
//	own/NAME\x00HASH   the token, after "k" if the name is kept
//	rec/NAME\x00TOKEN  the record: the first in order is that of the hold
//	tok/NAME\x00TOKEN  one key, with the last token that was given
//
// HASH is that of the owner: servers before 3.4.26 and 3.5.9 show the keys of a lease to all users.
func (s *Store) ownKey(name, owner string) string {
	hash := sha256.Sum256([]byte(owner))
	return s.ownKeys(name) + hex.EncodeToString(hash[:16])
}

// ownKeys is how the keys of all owners of a name begin.
func (s *Store) ownKeys(name string) string { return s.prefix + "own/" + name + "\x00" }
func (s *Store) recKey(name string, token int64) string {
	return fmt.Sprintf("%srec/%s\x00%016d", s.prefix, name, token)
}
func (s *Store) tokKey(name string, token int64) string {
	return fmt.Sprintf("%stok/%s\x00%016d", s.prefix, name, token)
}

// recordsEnd and countersEnd are the ends of the ranges of the keys of a name.
func (s *Store) recordsEnd(name string) string  { return s.prefix + "rec/" + name + "\x01" }
func (s *Store) countersEnd(name string) string { return s.prefix + "tok/" + name + "\x01" }

// A record is the value of a key rec/NAME\x00TOKEN.
type record struct {
	Holder   string            `json:"holder,omitempty"`
	Since    int64             `json:"since"` // milliseconds since 1970, by the clock of the client
	Kept     bool              `json:"kept,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func (r record) encode() string {
	text, _ := json.Marshal(r) // never fails
	return string(text)
}

// A found is a record in the store.
type found struct {
	record
	name  string
	token int64
	kv    *mvccpb.KeyValue
}

// decode reads a record.
func (s *Store) decode(kv *mvccpb.KeyValue) (f found, err error) {
	key := strings.TrimPrefix(string(kv.Key), s.prefix+"rec/")
	name, token, ok := strings.Cut(key, "\x00")
	f.name, f.kv = name, kv
	foreign := func(text string) bool {
		return len(text) > driver.MaxName || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl)
	}
	if f.token, err = strconv.ParseInt(token, 10, 64); err == nil && ok && f.token > 0 && f.token <= driver.MaxToken {
		if err = json.Unmarshal(kv.Value, &f.record); err == nil && !foreign(name) && !foreign(f.Holder) {
			return f, nil
		}
	}
	return f, fmt.Errorf("%w: key %q", driver.ErrCorrupt, kv.Key)
}

// public returns the Record of a hold without the time that is left.
func (f found) public(waiting int) driver.Record {
	rec := driver.Record{
		Name: f.name, Holder: f.Holder, Token: f.token, Since: time.UnixMilli(min(max(f.Since, 0), 1<<47)),
		Kept: f.Kept, Waiting: waiting, Metadata: f.Metadata,
	}
	if rec.Kept {
		rec.Holder, rec.Metadata = "", nil
	}
	return rec
}

// publish returns the Record of a hold. It reads how long the hold lasts, which is 0 if it
// has ended.
func (s *Store) publish(ctx context.Context, f found, waiting int) (driver.Record, error) {
	rec := f.public(waiting)
	ctx, cancel := bounded(ctx)
	defer cancel()
	resp, err := s.timeToLive(ctx, clientv3.LeaseID(f.kv.Lease))
	if err != nil {
		return rec, s.storeError(err)
	}
	if f.kv.Lease == 0 { // not a record of this package
		resp.TTL = int64(driver.MaxTTL / time.Second)
	}
	if resp.TTL >= 0 { // in whole seconds, rounded down
		rec.Remaining = max(time.Duration(min(resp.TTL, int64(100*driver.MaxTTL/time.Second)))*time.Second, time.Second/2)
	}
	return rec, nil
}

// write sends a transaction. After ErrLeaseNotFound the server may have lost other leases as well,
// and new ones are used.
func (s *Store) write(ctx context.Context, op clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, driver.NotApplied(err)
	}
	resp, err := s.do(ctx, op)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.mu.Lock()
		clear(s.idle)
		clear(s.counters)
		s.mu.Unlock()
	}
	if err != nil {
		return nil, s.storeError(err)
	}
	return resp.Txn(), nil
}

// send makes a request again that a member has turned away: the next one goes to another member,
// but that may be the same again if others are sent meanwhile.
func (s *Store) send(ctx context.Context, request func(ctx context.Context) error) (err error) {
	ctx = clientv3.WithRequireLeader(ctx)
	for try := range 2*len(s.client.Endpoints()) + 1 {
		if err = request(ctx); !isTurnedAway(err) {
			break
		}
		if sleep(ctx, rand.N(time.Duration(try+1)*time.Millisecond)) != nil {
			break
		}
	}
	return err
}

// isTurnedAway reports whether a member has refused a request because it has no leader or is a
// learner.
func isTurnedAway(err error) bool {
	desc := rpctypes.ErrorDesc(err)
	return desc == rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader) || desc == rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner)
}

// tries is how many tries a request has. Those of others, and watches, take turns of members, too,
// so that one for each member may all be made of the same.
func (s *Store) tries() int {
	n := len(s.client.Endpoints())
	if n > 1 {
		n *= 2
	}
	return n
}

// firstReply returns the first reply to a request that has the same effect when it is made again.
// It is made up to tries times, of one member after the other: again when it fails with an error
// that mayPass, and beside the first, which may be late, after its share of the time of ctx.
func firstReply[T any](ctx context.Context, s *Store, tries int, mayPass func(error) bool, request func(ctx context.Context) (T, error)) (reply T, err error) {
	type result struct {
		reply T
		err   error
	}
	share := answerBound / 2
	if deadline, ok := ctx.Deadline(); ok {
		share = min(share, time.Until(deadline)/time.Duration(tries+1))
	}
	tryCtx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	results := make(chan result, tries)
	next := time.NewTimer(0)
	defer next.Stop()
	for made, inFlight := 0, 0; ; {
		select {
		case <-next.C:
			if made == tries || inFlight > 0 && ctx.Err() != nil {
				continue
			}
			if !s.goWhileOpen(func() {
				var r result
				r.reply, r.err = request(tryCtx)
				results <- r
			}) {
				return reply, driver.ErrClosed
			}
			made, inFlight = made+1, inFlight+1
			next.Reset(share)
		case r := <-results:
			if r.err == nil || !mayPass(r.err) {
				return r.reply, r.err
			}
			err = cmp.Or(err, r.err)
			inFlight--
			if made < tries && ctx.Err() == nil {
				next.Reset(0)
			} else if inFlight == 0 {
				return reply, err
			}
		}
	}
}

// do sends a transaction.
func (s *Store) do(ctx context.Context, op clientv3.Op) (resp clientv3.OpResponse, err error) {
	err = s.send(ctx, func(ctx context.Context) error {
		resp, err = s.txn(ctx, op)
		return err
	})
	return resp, err
}

// txn sends a transaction to one member.
func (s *Store) txn(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	return s.client.Do(ctx, op)
}

// timeToLive reads how long a lease lasts.
func (s *Store) timeToLive(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseTimeToLiveResponse, error) {
	return firstReply(ctx, s, s.tries(), isTurnedAway, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return s.client.TimeToLive(ctx, id)
	})
}

// revoke ends a lease and its keys, or returns nil if it has ended.
func (s *Store) revoke(ctx context.Context, id clientv3.LeaseID) error {
	err := s.send(ctx, func(ctx context.Context) error {
		_, err := s.client.Revoke(ctx, id)
		return err
	})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}

// sleep returns after d. It returns the error of ctx if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// backOff sleeps before the next try after so many failures, a second at most.
func backOff(ctx context.Context, failures int) error {
	pause := min(50*time.Millisecond<<min(failures, 5), time.Second)
	return sleep(ctx, pause/2+rand.N(pause/2))
}

// bounded returns the context of a request: that of the caller if it has a deadline.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, requestBound)
}

// read sends reads that are served at one revision, which a majority confirms.
func (s *Store) read(ctx context.Context, gets ...clientv3.Op) (*clientv3.TxnResponse, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	resp, err := firstReply(ctx, s, s.tries(), isTurnedAway, func(ctx context.Context) (clientv3.OpResponse, error) {
		return s.txn(ctx, clientv3.OpTxn(nil, gets, nil))
	})
	if err != nil {
		return nil, s.storeError(err)
	}
	return resp.Txn(), nil
}

// refusals are replies of a server that has not applied a request. ErrNoSpace is none: the server
// applies requests that use up the space, and those that come before the alarm is raised.
var refusals = []error{
	rpctypes.ErrLeaseNotFound, rpctypes.ErrKeyNotFound, rpctypes.ErrTooManyOps, rpctypes.ErrDuplicateKey, rpctypes.ErrRequestTooLarge,
	rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed,
	rpctypes.ErrRoleNotGranted, rpctypes.ErrPermissionNotGranted,
	rpctypes.ErrGRPCNotSupportedForLearner, rpctypes.ErrCorrupt,
}

// storeError returns the error of a request as package driver defines it.
func (s *Store) storeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrTooManyRequests), rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader):
		return &driver.RetryError{Err: err}
	}
	for _, refusal := range refusals {
		if rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(refusal) || errors.Is(err, refusal) {
			return driver.NotApplied(err)
		}
	}
	return explain(err, s.unconnected)
}

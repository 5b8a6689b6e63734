package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// maxTokenLead is how far ahead of all others, in time, a client chooses a token after it was too late.
const maxTokenLead = 10 * time.Millisecond

// Acquire implements [driver.Store].
//
// The entry with the smallest token holds the name, so what ends an entry admits the next one, in
// the same revision: a Release, a Break, or the end of a lease.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	began, wall := time.Now(), s.wall()
	if err := s.checkAcquire(ctx, &req, wall); err != nil {
		return res, err
	}
	token := max(wall.UnixMicro(), req.Floor)
	waits := false // The entry to be made is a place.
	for try := 0; ; try++ {
		if token > driver.MaxToken {
			return res, fmt.Errorf("%w: no token is left", driver.ErrInvalid)
		}
		sent := time.Now()
		made, q, err := s.makeEntry(ctx, began, &req, waits, token)
		switch {
		case (errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, errForeignKey)) && try < 5:
			continue
		case err != nil:
			return res, err
		case made:
			s.watch(req.Name, req.Owner, true, func(ctx context.Context) { s.watchEntry(ctx, req.Name, req.Owner, token, !waits, q) })
			if !waits {
				return driver.Result{Granted: true, Token: token}, nil
			}
			return driver.Result{Waiting: true, Token: token, Held: q.front.public(int(q.count))}, nil
		case q.own != nil:
			return res, errors.New("the owner has an entry already")
		case q.count > 0 && req.Place == 0:
			res.Held, err = s.publish(ctx, q.front, int(q.count)-1)
			return res, err
		}
		if err := s.pause(ctx, began, try); err != nil {
			return res, err
		}
		waits = q.count > 0
		// The counter may be ahead of the clock. If it is that of a faster clock, other clients give
		// later tokens by the time this one arrives.
		lead := int64(0)
		if try > 0 {
			lead = min(time.Since(sent), maxTokenLead).Microseconds()
		}
		token = max(token, s.wall().UnixMicro(), q.last+1+lead)
	}
}

func (s *Store) checkAcquire(ctx context.Context, req *driver.Request, wall time.Time) error {
	switch err := s.check(ctx, req.Name, req.Owner); {
	case err != nil:
		return err
	case req.Limit > 1:
		return fmt.Errorf("%w: shared and limited locks", driver.ErrUnsupported)
	case req.Tokens > 1:
		return fmt.Errorf("%w: a grant has one token", driver.ErrInvalid)
	case req.Floor > 0 && req.Place > 0:
		return fmt.Errorf("%w: a floor and a place", driver.ErrInvalid)
	case req.Floor > wall.Add(driver.MaxLead).UnixMicro():
		return fmt.Errorf("%w: the floor of the token is too far ahead", driver.ErrInvalid)
	}
	return nil
}

// pause waits for a moment before another try to make an entry, when other clients were faster.
func (s *Store) pause(ctx context.Context, began time.Time, try int) error {
	if try < 2 {
		return nil
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = began.Add(requestBound)
	}
	pause := rand.N(time.Duration(min(try, 50)) * time.Millisecond)
	if time.Until(deadline) < 2*pause || sleep(ctx, pause) != nil {
		return &driver.RetryError{Err: fmt.Errorf("%d other clients were faster", try)}
	}
	return nil
}

// makeEntry sends one transaction. It makes a hold if the name has no entry, or if it waits a place
// if the name has one. It returns what the queue was before, except for a hold that it has made.
func (s *Store) makeEntry(ctx context.Context, began time.Time, req *driver.Request, waits bool, token int64) (made bool, q queue, err error) {
	ttl := req.TTL
	if waits {
		ttl = req.Place
	}
	l, err := s.takeLease(ctx, began, ttl)
	if err != nil {
		return false, q, err
	}
	counters, err := s.counterLease(ctx, req.Name, 0)
	if err != nil {
		s.putLease(l)
		return false, q, err
	}
	name, own, mine := req.Name, s.ownKey(req.Name, req.Owner), s.recKey(req.Name, token)
	begin, end := s.recKey(name, 0), s.recordsEnd(name)
	// No token from this one on was given, as far as the counter lasts, and none is in use.
	conditions := []clientv3.Cmp{absent(s.tokKey(name, token), s.countersEnd(name)), absent(begin, end)}
	rec := record{Holder: req.Holder, Since: time.Now().UnixMilli(), Metadata: req.Metadata}
	state := s.queueOps(name, req.Owner, token)
	puts := func(l, counters clientv3.LeaseID) []clientv3.Op {
		return []clientv3.Op{
			clientv3.OpPut(own, fmt.Sprintf("%016d", token), clientv3.WithLease(l)),
			clientv3.OpPut(mine, rec.encode(), clientv3.WithLease(l)),
			clientv3.OpDelete(s.tokKey(name, 0), clientv3.WithRange(s.tokKey(name, token))),
			clientv3.OpPut(s.tokKey(name, token), "", clientv3.WithLease(counters)),
		}
	}
	success := puts(l.id, counters)
	if waits {
		conditions[1] = absent(mine, end)
		conditions = append(conditions, absent(own, own+"\x00"), clientv3.Compare(clientv3.CreateRevision(begin), ">", 0).WithRange(end))
		success = append(slices.Clone(state), success...)
	}
	resp, err := s.write(ctx, clientv3.OpTxn(conditions, success, state))
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		// It may be the keys, or a key of somebody else on a lease, which no new lease has.
		ctx, cancel := bounded(ctx)
		defer cancel()
		if _, tryErr := s.do(ctx, clientv3.OpTxn([]clientv3.Cmp{never(mine)}, puts(0, 0), state)); tryErr == nil {
			s.dropRefused(l)
			if _, grantErr := s.counterLease(ctx, name, counters); grantErr != nil {
				return false, q, grantErr
			}
			return false, q, driver.NotApplied(fmt.Errorf("%w: %w", errForeignKey, err))
		}
	}
	if err != nil {
		if errors.Is(err, rpctypes.ErrNoSpace) { // The entry may have been made, and ends with the lease.
			ctx, cancel := bounded(ctx)
			defer cancel()
			if s.revoke(ctx, l.id) == nil {
				return false, q, driver.NotApplied(err)
			}
		}
		if !driver.IsNotApplied(err) {
			s.remember(name, req.Owner, func(e *ownerState) { e.doubtful = append(e.doubtful, l) })
		} else if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			s.putLease(l)
		}
		return false, q, err
	}
	if made = resp.Succeeded; made {
		s.remember(name, req.Owner, func(e *ownerState) { e.token, e.lease = token, l })
	} else {
		s.stock(l)
	}
	if waits || !made {
		q, err = s.decodeQueue(resp)
	} else {
		q.revision = resp.Header.Revision
	}
	return made, q, err
}

// errForeignKey is the error of a request whose lease may have a key that the user may not write.
var errForeignKey = errors.New("a lease has keys of another user")

// never is a condition that does not hold. The server checks the rights of its transaction all the
// same.
func never(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "<", 0)
}

// absent is the condition that no key is from begin to end.
func absent(begin, end string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(begin), "=", 0).WithRange(end)
}

// A queue is what the store has of a name, as seen by an owner with a token.
type queue struct {
	own      *mvccpb.KeyValue // the entry of the owner, nil if it has none
	mine     *mvccpb.KeyValue // the record with the token, nil if there is none
	front    found            // the hold or keep
	count    int64            // of all entries
	ahead    int64            // of those before the token
	before   string           // the key of the one before it, "" if it is the first
	last     int64            // the greatest token that was given
	revision int64
}

func (s *Store) readQueue(ctx context.Context, name, owner string, token int64) (queue, error) {
	resp, err := s.read(ctx, s.queueOps(name, owner, token)...)
	if err != nil {
		return queue{}, err
	}
	return s.decodeQueue(resp)
}

func (s *Store) queueOps(name, owner string, token int64) []clientv3.Op {
	begin, mine, end := s.recKey(name, 0), s.recKey(name, token), s.recordsEnd(name)
	return []clientv3.Op{
		clientv3.OpGet(s.ownKey(name, owner)), clientv3.OpGet(mine), outermost(begin, end, clientv3.SortAscend),
		outermost(begin, mine, clientv3.SortDescend), outermost(begin, end, clientv3.SortDescend),
		outermost(s.tokKey(name, 0), s.countersEnd(name), clientv3.SortDescend),
	}
}

// outermost gets the first or last key from begin to end, and how many there are.
func outermost(begin, end string, order clientv3.SortOrder) clientv3.Op {
	return clientv3.OpGet(begin, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithSort(clientv3.SortByKey, order))
}

// decodeQueue reads the responses to queueOps.
func (s *Store) decodeQueue(resp *clientv3.TxnResponse) (q queue, err error) {
	q.revision = resp.Header.Revision
	for i, r := range resp.Responses[:6] {
		r := r.GetResponseRange()
		if len(r.Kvs) == 0 {
			continue
		}
		switch kv := r.Kvs[0]; i {
		case 0:
			q.own = kv
		case 1:
			q.mine = kv
		case 2:
			q.count = r.Count
			if q.front, err = s.decode(kv); err != nil {
				return q, err
			}
		case 3:
			q.ahead, q.before = r.Count, string(kv.Key)
		case 4:
			if f, err := s.decode(kv); err == nil {
				q.last = f.token
			}
		case 5:
			_, text, _ := strings.Cut(string(kv.Key), "\x00")
			token, _ := strconv.ParseInt(text, 10, 64) // else 0
			q.last = max(q.last, token)
		}
	}
	return q, nil
}

// remember changes the entry of an owner. From time to time it forgets those that have ended
// without a Release.
func (s *Store) remember(name, owner string, change func(e *ownerState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := [2]string{name, owner}
	e := s.entries[key]
	if e == nil {
		e = &ownerState{}
		s.entries[key] = e
	}
	change(e)
	if len(s.entries) < s.sweepAt {
		return
	}
	now := time.Now()
	lasts := func(l *lease) bool { return l != nil && now.Before(l.certain.Add(time.Hour)) }
	for key, e := range s.entries {
		if !lasts(e.lease) && !slices.ContainsFunc(e.doubtful, lasts) {
			delete(s.entries, key)
		}
	}
	s.sweepAt = max(1024, 2*len(s.entries))
}

// parseOwn reads the value of a key own/NAME\x00HASH.
func parseOwn(kv *mvccpb.KeyValue) (token int64, kept bool) {
	text, kept := strings.CutPrefix(string(kv.Value), "k")
	token, _ = strconv.ParseInt(text, 10, 64) // else 0
	return token, kept
}

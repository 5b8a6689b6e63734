package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// absent is the condition that no key is from begin to end.
func absent(begin, end string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(begin), "=", 0).WithRange(end)
}

// first and last get the first or last key from begin to end, and how many there are.
func first(begin, end string) clientv3.Op {
	return clientv3.OpGet(begin, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
}

func last(begin, end string) clientv3.Op {
	return clientv3.OpGet(begin, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
}

// Acquire implements [driver.Store].
//
// An owner gets its token, and its place in the order of tokens, when the entry is made. The entry
// with the smallest token holds the name, so what ends an entry admits the next one, in the same
// revision: a Release, a Break, or the end of a lease.
func (s *Store) Acquire(ctx context.Context, req driver.AcquireRequest) (res driver.AcquireResult, err error) {
	if err := s.check(ctx, req.Name, req.Owner); err != nil {
		return res, err
	}
	switch {
	case req.Weight < 0 || req.Weight > max(req.Limit, 0):
		return res, fmt.Errorf("%w: the weight is negative or above the limit", driver.ErrInvalid)
	case req.Limit != 0:
		return res, fmt.Errorf("%w: shared and limited locks", driver.ErrUnsupported)
	}
	began, wall := time.Now(), s.wall()
	queue := req.Queue
	if req.NoPlace {
		queue = 0
	}
	tooFar := req.Floor > wall.Add(driver.MaxLead).UnixMicro()
	token := max(wall.UnixMicro(), req.Floor)
	for try := 0; ; try++ {
		tokens := min(max(req.Tokens, 1), driver.MaxTokens)
		if token+int64(tokens)-1 > max(wall.Add(driver.MaxTokensLead).UnixMicro(), req.Floor) {
			tokens = 1
		}
		makes := !req.Claim && !tooFar && token+int64(tokens)-1 <= driver.MaxToken
		a := attempt{store: s, req: &req, token: token, tokens: tokens}
		if makes {
			if a.leases, err = s.takeLeases(ctx, began, req.TTL, queue); err == nil {
				a.counters, err = s.dayLease(ctx)
			}
			if err != nil {
				return res, err
			}
		}
		state, err := a.send(ctx, makes, queue)
		if try < 5 && errors.Is(err, rpctypes.ErrLeaseNotFound) {
			s.mu.Lock()
			s.counters = 0 // It may be that of the counters.
			s.mu.Unlock()
			continue
		}
		if err != nil {
			return res, err
		}
		switch {
		case state.granted:
			return driver.AcquireResult{Granted: true, Token: token, Tokens: tokens}, nil
		case state.placed:
			res.Queued, res.First = true, state.count == 2
			s.goWhileOpen(func() {
				s.watchPlace(state.watch, req.Name, req.Owner, token, tokens, state.before, state.revision, res.First)
			})
			if res.First {
				res.Held, _ = s.publish(ctx, state.front, 0) // The place is made.
			}
			return res, nil
		case state.own != nil:
			return s.recognize(ctx, began, &req, queue, state.own)
		case !req.Claim && (state.count == 0 || queue > 0):
			if !makes {
				return res, fmt.Errorf("%w: the floor of the token is too far ahead", driver.ErrInvalid)
			}
			token = max(token, state.lastToken+1) // The counter is ahead of the clock.
			if try >= 20 {
				return res, driver.NotApplied(fmt.Errorf("%d other clients were faster", try))
			}
			continue
		}
		if state.count > 0 {
			if res.Held, err = s.publish(ctx, state.front, int(state.count)-1); err != nil {
				return driver.AcquireResult{}, err
			}
		}
		if req.NoPlace && req.Queue > 0 && (state.count > 0 || req.Claim) {
			s.askUntil(req.Name, req.Owner, began.Add(req.Queue), state.revision)
			res.Queued = true
		}
		return res, nil
	}
}

// An attempt is one transaction that tries to make an entry.
type attempt struct {
	store    *Store
	req      *driver.AcquireRequest
	token    int64
	tokens   int
	leases   []*lease // of a hold, and of a place
	counters clientv3.LeaseID
}

// A state is what an attempt has found or made.
type state struct {
	granted, placed bool
	own             *mvccpb.KeyValue // the entry of the owner, if it had one before
	front           found            // the hold or keep
	count           int64            // of the entries
	lastToken       int64            // that was given
	before          string           // the key of the entry before the place
	revision        int64
	watch           context.Context // of the place
}

// send sends the transaction. It makes an entry if makes is set: a hold if there is no entry, else a
// place if queue is above zero.
func (a *attempt) send(ctx context.Context, makes bool, queue time.Duration) (st state, err error) {
	s, name := a.store, a.req.Name
	own, begin, end := s.ownKey(name, a.req.Owner), s.recKey(name, 0), s.recordsEnd(name)
	mine, counted := s.recKey(name, a.token), s.tokKey(name, a.token+int64(a.tokens)-1)
	rec := record{Holder: a.req.Holder, Since: time.Now().UnixMilli(), Tokens: a.tokens, Metadata: a.req.Metadata}
	put := func(i int) (ops []clientv3.Op) {
		if !makes || a.leases[i] == nil {
			return nil
		}
		lease := clientv3.WithLease(a.leases[i].id)
		return []clientv3.Op{
			clientv3.OpPut(own, fmt.Sprintf("%016d", a.token), lease),
			clientv3.OpPut(mine, rec.encode(), lease),
			clientv3.OpDelete(s.tokKey(name, 0), clientv3.WithRange(s.tokKey(name, a.token))),
			clientv3.OpPut(counted, "", clientv3.WithLease(a.counters)),
		}
	}
	// No token from this one on was given, as far as the counter lasts, and none is in use.
	higher := []clientv3.Cmp{absent(s.tokKey(name, a.token), s.countersEnd(name)), absent(mine, end)}
	ops := []clientv3.Op{
		clientv3.OpGet(own), clientv3.OpGet(own), first(begin, end), last(begin, mine),
		last(s.tokKey(name, 0), s.countersEnd(name)), last(begin, end),
	}
	var resp *clientv3.TxnResponse
	if makes {
		ops[1] = clientv3.OpTxn(append(higher, absent(own, own+"\x00")), put(1), nil)
		resp, err = s.write(ctx, name, clientv3.OpTxn(append(higher, absent(begin, end)), put(0), ops))
	} else {
		resp, err = s.read(ctx, name, ops...)
	}
	if err != nil {
		if makes && !driver.IsNotApplied(err) {
			s.remember(name, a.req.Owner, func(e *entry) { e.doubtful = append(e.doubtful, a.leases...) })
		} else if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			s.putLeases(a.leases...)
		}
		return st, err
	}
	st.revision = resp.Header.Revision
	if makes && resp.Succeeded {
		st.granted = true
		s.putLeases(a.leases[1])
		s.remember(name, a.req.Owner, func(e *entry) { e.token, e.lease = a.token, a.leases[0] })
		return st, nil
	}
	at := func(i int) []*mvccpb.KeyValue { return resp.Responses[i].GetResponseRange().Kvs }
	st.placed = makes && queue > 0 && resp.Responses[1].GetResponseTxn().Succeeded
	if kvs := at(0); len(kvs) > 0 {
		st.own = kvs[0]
	}
	st.count = resp.Responses[2].GetResponseRange().Count
	if kvs := at(2); len(kvs) > 0 {
		if st.front, err = s.decode(kvs[0]); err != nil {
			s.putLeases(a.leases...)
			return st, err
		}
	}
	if kvs := at(3); len(kvs) > 0 {
		st.before = string(kvs[0].Key)
	}
	for i := 4; i <= 5; i++ {
		if kvs := at(i); len(kvs) > 0 {
			_, text, _ := strings.Cut(string(kvs[0].Key), "\x00")
			token, _ := strconv.ParseInt(text, 10, 64) // else 0
			if f, err := s.decode(kvs[0]); i == 5 && err == nil {
				token += int64(max(f.Tokens, 1)) - 1
			}
			st.lastToken = max(st.lastToken, token)
		}
	}
	if st.placed {
		s.putLeases(a.leases[0])
		s.remember(name, a.req.Owner, func(e *entry) {
			e.token, e.lease = a.token, a.leases[1]
			st.watch = s.newWatch(e)
		})
	} else {
		s.putLeases(a.leases...)
	}
	return st, nil
}

// remember changes the entry of an owner. From time to time it forgets those that have ended
// without a Release.
func (s *Store) remember(name, owner string, change func(e *entry)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := [2]string{name, owner}
	e := s.entries[key]
	if e == nil {
		e = &entry{}
		s.entries[key] = e
	}
	change(e)
	if len(s.entries) < s.sweepAt {
		return
	}
	now := time.Now()
	for key, e := range s.entries {
		ended := func(l *lease) bool { return l == nil || now.After(l.certain.Add(time.Hour)) }
		if ended(e.lease) && !slices.ContainsFunc(e.doubtful, func(l *lease) bool { return !ended(l) }) {
			delete(s.entries, key)
		}
	}
	s.sweepAt = max(1024, 2*len(s.entries))
}

// recognize is the result for an owner that has an entry already: it prolongs the entry.
func (s *Store) recognize(ctx context.Context, began time.Time, req *driver.AcquireRequest, queue time.Duration, own *mvccpb.KeyValue) (res driver.AcquireResult, err error) {
	token, kept := parseOwn(own)
	if token == 0 {
		return res, fmt.Errorf("%w: key of an owner of %q", driver.ErrCorrupt, req.Name)
	}
	p, err := s.position(ctx, req.Name, token)
	if err != nil {
		return res, err
	}
	if kept || p.mine == nil {
		if p.count > 0 && !req.Claim {
			res.Held, err = s.publish(ctx, p.front, int(p.count)-1)
		}
		return res, err
	}
	ttl := req.TTL
	if p.before != "" {
		ttl = queue
	}
	if ttl > 0 {
		outcomes, err := s.prolong(ctx, began, []*entryToProlong{{name: req.Name, owner: req.Owner, own: own, ttl: ttl}})
		if err != nil || outcomes[0] != driver.Renewed {
			return res, err
		}
	}
	if p.before == "" {
		mine, err := s.decode(p.mine)
		return driver.AcquireResult{Granted: true, Token: token, Tokens: max(mine.Tokens, 1)}, err
	}
	if queue == 0 {
		return res, nil
	}
	res.Queued, res.First = true, p.ahead == 1
	s.watchAgain(req.Name, req.Owner, token)
	if res.First {
		res.Held, _ = s.publish(ctx, p.front, 0) // The place is prolonged.
	}
	return res, nil
}

// parseOwn reads the value of a key own/NAME\x00OWNER.
func parseOwn(kv *mvccpb.KeyValue) (token int64, kept bool) {
	text, kept := strings.CutPrefix(string(kv.Value), "k")
	token, _ = strconv.ParseInt(text, 10, 64) // else 0
	return token, kept
}

// A position is where an entry is in the queue of its name.
type position struct {
	mine     *mvccpb.KeyValue // nil if there is no such entry
	front    found            // the hold or keep
	count    int64            // of all entries
	ahead    int64            // of those before it
	before   string           // the key of the one before it, "" if it is the first
	revision int64
}

func (s *Store) position(ctx context.Context, name string, token int64) (p position, err error) {
	begin, mine, end := s.recKey(name, 0), s.recKey(name, token), s.recordsEnd(name)
	resp, err := s.read(ctx, name, clientv3.OpGet(mine), first(begin, end), last(begin, mine))
	if err != nil {
		return p, err
	}
	p.revision = resp.Header.Revision
	for i, r := range resp.Responses {
		r := r.GetResponseRange()
		if len(r.Kvs) == 0 {
			continue
		}
		switch i {
		case 0:
			p.mine = r.Kvs[0]
		case 1:
			p.count = r.Count
			if p.front, err = s.decode(r.Kvs[0]); err != nil {
				return p, err
			}
		case 2:
			p.ahead, p.before = r.Count, string(r.Kvs[0].Key)
		}
	}
	return p, nil
}

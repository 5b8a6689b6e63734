package pgstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batch"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

const (
	// maxBatch is the maximum size of a batch. Its results are visible when all of it is committed.
	maxBatch = 128

	// batchTimeout bounds a batch. After that its outcome is unknown.
	batchTimeout = 3 * time.Second

	// batchDelay is how long a batch holds up changes of other names. It is longer than a busy
	// server and its disk take, and less than anybody notices when a connection hangs.
	batchDelay = 50 * time.Millisecond

	// pageSize is how many names a List fetches at once. No connection is kept while the caller
	// processes them.
	pageSize = 1000
)

// A call is one Acquire or Release, with its answer or an error.
type call[R, A any] struct {
	req    R
	answer *A
	err    error
}

// A verb is what a batch of calls needs. All of them are sent by the first function, which does
// what is usual. What it leaves of a batch is sent by the second one, in a transaction of its own:
// so no batch waits for a row while it has locked another out of order.
type verb[R, A any] struct {
	first, second string
	name          func(R) string
	send          func(ctx context.Context, function string, reqs []R) ([]A, error)
	answered      func(*A) string // the name of the request
	queue         *batch.Queue[*call[R, A]]
}

// withQueue adds a queue that sends one batch at a time: the commit is what costs, and it gathers.
func (v *verb[R, A]) withQueue() *verb[R, A] {
	v.queue = &batch.Queue[*call[R, A]]{
		Send: func(ctx context.Context, calls []*call[R, A]) {
			deadline, _ := ctx.Deadline()
			ctx, cancel := context.WithDeadline(context.Background(), deadline.Add(-graceTime)) // A statement has that beyond it.
			defer cancel()
			v.sendAll(ctx, calls)
		},
		Name:       func(c *call[R, A]) string { return v.name(c.req) },
		InFlight:   1,
		Max:        maxBatch,
		Bound:      batchTimeout,
		StuckAfter: batchDelay,
		MinInline:  time.Millisecond,
	}
	return v
}

// errNotTogether means that the server has undone a batch, because of one of its calls. Each caller
// then makes its call alone, so that a row that another transaction has locked holds up no other.
var errNotTogether = driver.NotApplied(errors.New("the batch was undone"))

func (v *verb[R, A]) sendAll(ctx context.Context, calls []*call[R, A]) {
	order := func(c, d *call[R, A]) int { return strings.Compare(v.name(c.req), v.name(d.req)) }
	left := slices.SortedStableFunc(slices.Values(calls), order)
	rest := left
	if len(calls) > 1 { // of one name the first alone
		left = slices.CompactFunc(slices.Clone(left), func(c, d *call[R, A]) bool { return order(c, d) == 0 })
	}
	var err error
	for _, function := range []string{v.first, v.second} {
		if len(left) == 0 {
			break
		}
		var reqs []R
		for _, c := range left {
			reqs = append(reqs, c.req)
		}
		var answers []A
		if answers, err = v.send(ctx, function, reqs); err != nil {
			break
		}
		for _, c := range left { // The answers come in the order of the requests.
			if len(answers) > 0 && v.answered(&answers[0]) == v.name(c.req) {
				c.answer, answers = &answers[0], answers[1:]
			}
		}
		rest = slices.DeleteFunc(rest, func(c *call[R, A]) bool { return c.answer != nil })
		left = rest
	}
	if driver.IsNotApplied(err) && len(calls) > 1 {
		err = errNotTogether
	}
	for _, c := range rest {
		c.err = err
	}
}

// do sends a request in a batch, or alone if that was undone. A call that is sent is awaited for
// graceTime beyond the deadline of ctx, canceled or not, so that the release that follows does not
// overtake it.
func (v *verb[R, A]) do(ctx context.Context, req R) (*A, error) {
	c := &call[R, A]{req: req}
	sent := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		sent, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(graceTime))
		defer cancel()
	}
	switch err := v.queue.Do(sent, c); {
	case errors.Is(err, batch.ErrNotSent):
		return nil, driver.NotApplied(err)
	case err != nil:
		return nil, fmt.Errorf("no answer from PostgreSQL: %w", context.DeadlineExceeded)
	}
	if errors.Is(c.err, errNotTogether) {
		v.sendAll(ctx, []*call[R, A]{c})
	}
	return c.answer, c.err
}

// An acquireRequest is a request, with what the server keeps of it.
type acquireRequest struct {
	*driver.Request
	metadata string
}

// An acquireRow is the server's answer.
type acquireRow struct {
	Name    string
	Outcome string
	Token   int64
	Held    *holdJSON
	Told    []string
}

func (s *Store) acquireVerb() *verb[acquireRequest, acquireRow] {
	return &verb[acquireRequest, acquireRow]{
		first:    "take",
		second:   "enter",
		name:     func(req acquireRequest) string { return req.Name },
		answered: func(row *acquireRow) string { return row.Name },
		send: func(ctx context.Context, function string, reqs []acquireRequest) ([]acquireRow, error) {
			var names, owners, holders, metadata []string
			var ttls, places, floors []int64
			var limits, tokens []int32
			for _, req := range reqs {
				names, owners, holders = append(names, req.Name), append(owners, req.Owner), append(holders, req.Holder)
				metadata = append(metadata, req.metadata)
				ttls, places, floors = append(ttls, micros(req.TTL)), append(places, micros(req.Place)), append(floors, req.Floor)
				limits, tokens = append(limits, int32(max(req.Limit, 1))), append(tokens, int32(max(req.Tokens, 1)))
			}
			return query(ctx, s, s.pool, "SELECT name, outcome, token, held, told FROM @."+function+"($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
				[]any{names, owners, holders, ttls, places, limits, tokens, floors, metadata, s.listener.channel}, pgx.RowToStructByPos[acquireRow])
		},
	}
}

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	if err := errors.Join(s.checkUsable(ctx), checkRequest(&req)); err != nil {
		return res, err
	}
	metadata, err := encodeMetadata(req.Metadata)
	if err != nil {
		return res, err
	}
	s.listener.expect(req.Name, req.Owner, max(req.TTL, req.Place))
	row, err := s.acquires.do(ctx, acquireRequest{&req, metadata})
	if err != nil {
		return res, err
	}
	s.tell(row.Told)
	s.maybeSweep()
	switch row.Outcome {
	case "again":
		return res, errors.New("the owner has an entry")
	case "floor":
		err = fmt.Errorf("%w: the floor of the token is more than %v above the server's clock", driver.ErrInvalid, driver.MaxLead)
	case "last":
		err = fmt.Errorf("%w: the name has had the greatest token that there is", driver.ErrInvalid)
	case "held", "waiting":
		res = driver.Result{Granted: row.Outcome == "held", Waiting: row.Outcome == "waiting", Token: row.Token}
		s.startListening(res.Waiting)
	}
	if !res.Granted && !res.Waiting {
		s.listener.forget(req.Name, req.Owner)
	}
	if row.Held != nil {
		res.Held = row.Held.record()
	}
	return res, err
}

// checkRequest returns the error of a request that no server is asked for.
func checkRequest(req *driver.Request) error {
	switch {
	case req.Owner == "":
		return pgclient.CheckOwner(req.Owner)
	case req.Limit < 0 || req.Limit > driver.Shared:
		return fmt.Errorf("%w: the limit is below 0 or above %d", driver.ErrInvalid, driver.Shared)
	case req.Tokens < 0 || req.Tokens > driver.MaxTokens:
		return fmt.Errorf("%w: more than %d tokens are requested", driver.ErrInvalid, driver.MaxTokens)
	case req.Tokens > 1 && (req.Limit > 1 || req.Floor > 0):
		return fmt.Errorf("%w: several tokens with a limit or a floor", driver.ErrInvalid)
	case req.Floor > 0 && req.Place > 0:
		return fmt.Errorf("%w: a floor with a place", driver.ErrInvalid)
	case req.Floor > driver.MaxToken:
		return fmt.Errorf("%w: the floor is above the greatest token", driver.ErrInvalid)
	}
	return nil
}

// Renew implements [driver.Store]. It passes over rows that other transactions have locked, and
// then waits for them a while, so that one of them costs no other its time.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	entries := make([]driver.Entry, len(reqs))
	var left []int
	for i, req := range reqs {
		s.listener.expect(req.Name, req.Owner, req.TTL)
		left = append(left, i)
	}
	left, err := s.renew(ctx, reqs, entries, left, false)
	if err == nil && len(left) > 0 {
		left, err = s.renew(ctx, reqs, entries, left, true)
	}
	if err == nil && len(left) > 0 {
		err = errors.New("another transaction has locked the row")
	}
	return entries, err
}

// renew renews the entries with these numbers, and returns those of which the server says nothing.
func (s *Store) renew(ctx context.Context, reqs []driver.RenewRequest, entries []driver.Entry, numbers []int, patient bool) (left []int, err error) {
	var names, owners []string
	var tokens, ttls []int64
	for _, i := range numbers {
		names, owners = append(names, reqs[i].Name), append(owners, reqs[i].Owner)
		tokens, ttls = append(tokens, reqs[i].Token), append(ttls, micros(reqs[i].TTL))
	}
	type row struct {
		Item    int
		Outcome string
		Token   int64
		Told    []string
	}
	rows, err := query(ctx, s, renewSource{s}, "SELECT item, outcome, token, told FROM @.renew($1, $2, $3, $4, $5)",
		[]any{names, owners, tokens, ttls, patient}, pgx.RowToStructByPos[row])
	states := map[string]driver.State{"held": driver.Held, "waiting": driver.Waiting, "lost": driver.Lost}
	for _, row := range rows {
		i := numbers[row.Item-1]
		if entries[i] = (driver.Entry{State: states[row.Outcome], Token: row.Token}); entries[i].State == driver.Lost {
			s.listener.forget(reqs[i].Name, reqs[i].Owner)
		}
		s.tell(row.Told)
	}
	for _, i := range numbers {
		if entries[i].State == driver.Unknown {
			left = append(left, i)
		}
	}
	return left, err
}

// A releaseRow is the server's answer.
type releaseRow struct {
	Name  string
	Ended bool
	Told  []string
}

func (s *Store) releaseVerb() *verb[driver.ReleaseRequest, releaseRow] {
	return &verb[driver.ReleaseRequest, releaseRow]{
		first:    "give",
		second:   "leave",
		name:     func(req driver.ReleaseRequest) string { return req.Name },
		answered: func(row *releaseRow) string { return row.Name },
		send: func(ctx context.Context, function string, reqs []driver.ReleaseRequest) ([]releaseRow, error) {
			var names, owners []string
			var keeps []int64
			for _, req := range reqs {
				names, owners, keeps = append(names, req.Name), append(owners, req.Owner), append(keeps, micros(req.Keep))
			}
			return query(ctx, s, s.pool, "SELECT name, ended, told FROM @."+function+"($1, $2, $3)",
				[]any{names, owners, keeps}, pgx.RowToStructByPos[releaseRow])
		},
	}
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := errors.Join(s.checkUsable(ctx), pgclient.CheckOwner(req.Owner)); err != nil {
		return false, err
	}
	row, err := s.releases.do(ctx, req)
	if err != nil {
		return false, err
	}
	s.listener.forget(req.Name, req.Owner)
	s.tell(row.Told)
	return row.Ended, nil
}

// A heldRow has the holds of a name.
type heldRow struct {
	Held []holdJSON
	Told []string
}

func (s *Store) queryHeld(ctx context.Context, text string, args ...any) ([]driver.Record, error) {
	rows, err := query(ctx, s, s.pool, text, args, pgx.RowToStructByPos[heldRow])
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	s.tell(rows[0].Told)
	return records(rows[0].Held), nil
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string, token int64) ([]driver.Record, error) {
	return s.queryHeld(ctx, "SELECT held, told FROM @.break_holds($1, $2)", name, token)
}

// Lookup implements [driver.Store].
func (s *Store) Lookup(ctx context.Context, name string) ([]driver.Record, error) {
	return s.queryHeld(ctx, "SELECT held, told FROM @.look($1)", name)
}

// List implements [driver.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Record, error] {
	type row struct {
		Name string
		heldRow
	}
	return func(yield func(driver.Record, error) bool) {
		after := ""
		for {
			rows, err := query(ctx, s, s.pool, "SELECT name, held, told FROM @.list($1, $2, $3)",
				[]any{prefix, after, int64(pageSize)}, pgx.RowToStructByPos[row])
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			for _, row := range rows {
				s.tell(row.Told)
				for _, rec := range records(row.Held) {
					if !yield(rec, nil) {
						return
					}
				}
				after = row.Name
			}
			if len(rows) < pageSize {
				return
			}
		}
	}
}

// One in sweepEvery acquisitions, and one in a minute of a process, deletes rows of names that have
// been free for long. The choice is random, since many processes acquire one lock only.
const (
	sweepEvery   = 500
	sweepTimeout = 30 * time.Second
)

func (s *Store) maybeSweep() {
	now, last := time.Now().Unix(), s.sweptAt.Load()
	if rand.IntN(sweepEvery) > 0 || now-last < 60 || !s.sweptAt.CompareAndSwap(last, now) {
		return
	}
	s.goBackground(func() {
		ctx, cancel := context.WithTimeout(s.ctx, sweepTimeout)
		defer cancel()
		_, _ = query(ctx, s, s.pool, "SELECT @.sweep_locks()", nil, pgx.RowTo[int64]) // The next one makes up for a failure.
	})
}

// micros rounds up, so that nothing ends too early.
func micros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

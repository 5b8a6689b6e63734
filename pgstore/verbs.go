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
	"github.com/holdfast-go/holdfast/internal/lockqueue"
)

const (
	// maxBatch is the greatest number of calls in a batch. All wait for its one commit.
	maxBatch = 128

	// batchTimeout bounds a batch. After that its outcome is unknown.
	batchTimeout = 3*time.Second + graceTime

	// batchDelay is how long a batch holds up the calls of other names. It is longer than a
	// busy server and its disk take, and short enough to go unnoticed if a connection hangs.
	batchDelay = 50 * time.Millisecond

	// pageSize is how many names a List fetches at once. It keeps no connection between pages.
	pageSize = 1000
)

// A call is an Acquire, a Renew or a Release of one name, with its answer or an error.
type call struct {
	name, owner string
	req         driver.Request // of an Acquire
	token       int64          // of a Renew
	time        time.Duration  // the TTL of a Renew, the Keep of a Release
	answer      answer
	err         error
}

// An answer is what the server returns for a call.
type answer struct {
	item    int      // the number of the call, from 1
	outcome string   // "" if there is no answer
	told    []string // whom to notify
	token   int64
	held    *holdJSON
}

// column returns the array of one value of each call.
func column[T any](calls []*call, value func(c *call) T) []T {
	values := make([]T, len(calls))
	for i, c := range calls {
		values[i] = value(c)
	}
	return values
}

func nameOf(c *call) string  { return c.name }
func ownerOf(c *call) string { return c.owner }
func timeOf(c *call) int64   { return micros(c.time) }

const (
	acquireText = "SELECT item, outcome, told, token, held FROM @.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
	renewText   = "SELECT item, outcome, told, token FROM @.renew($1, $2, $3, $4, $5)"
	releaseText = "SELECT item, outcome, told FROM @.release($1, $2, $3, $4)"
)

func (s *Store) acquireArgs(calls []*call) []any {
	return []any{
		column(calls, nameOf),
		column(calls, ownerOf),
		column(calls, func(c *call) string { return c.req.Holder }),
		column(calls, func(c *call) int64 { return micros(c.req.TTL) }),
		column(calls, func(c *call) int64 { return micros(c.req.Place) }),
		column(calls, func(c *call) int32 { return int32(max(c.req.Limit, 1)) }),
		column(calls, func(c *call) int32 { return int32(max(c.req.Tokens, 1)) }),
		column(calls, func(c *call) int64 { return c.req.Floor }),
		column(calls, func(c *call) *string { return encodeMetadata(c.req.Metadata) }),
		s.channel,
	}
}

func renewArgs(calls []*call) []any {
	return []any{column(calls, nameOf), column(calls, ownerOf), column(calls, func(c *call) int64 { return c.token }), column(calls, timeOf)}
}

func releaseArgs(calls []*call) []any {
	return []any{column(calls, nameOf), column(calls, ownerOf), column(calls, timeOf)}
}

// send makes calls in one statement, in the order of their names. The calls that have no answer
// then are made in a second statement, whose transaction has locked no row yet: so none waits for a
// row while it has locked another one out of order. The last argument says whether it is the
// second.
func (s *Store) send(ctx context.Context, from source, text string, calls []*call, args func(calls []*call) []any) error {
	calls = slices.SortedStableFunc(slices.Values(calls), func(c, d *call) int { return strings.Compare(c.name, d.name) })
	for _, rest := range []bool{false, true} {
		if len(calls) == 0 {
			return nil
		}
		var a answer
		row := []any{&a.item, &a.outcome, &a.told, &a.token, &a.held} // renew and release return fewer
		answers, err := query(ctx, s, from, text, append(args(calls), rest), func(r pgx.CollectableRow) (answer, error) {
			err := r.Scan(row[:len(r.FieldDescriptions())]...)
			return a, err
		})
		if err != nil {
			return err
		}
		var told []string
		for _, a := range answers {
			calls[a.item-1].answer = a
			told = append(told, a.told...)
		}
		s.tell(ctx, told)
		calls = slices.DeleteFunc(calls, func(c *call) bool { return c.answer.outcome != "" })
	}
	if len(calls) > 0 {
		return errors.New("another transaction has locked the row")
	}
	return nil
}

// errNotTogether means that the server has undone a batch, because of one of its calls. Each caller
// then makes its call alone, so that a row that another transaction has locked holds up no other.
var errNotTogether = driver.NotApplied(errors.New("the batch was undone"))

// newQueue returns a queue of calls that are sent together, one batch at a time unless one hangs: a
// batch has one commit, which is most of its cost, and calls gather while it lasts.
func (s *Store) newQueue(text string, args func(calls []*call) []any) *batch.Queue[*call] {
	return &batch.Queue[*call]{
		Send: func(ctx context.Context, calls []*call) {
			err := s.send(ctx, s.pool.Acquire, text, calls, args)
			if driver.IsNotApplied(err) && len(calls) > 1 {
				err = errNotTogether
			}
			for _, c := range calls {
				c.err = nil // that of a batch that was undone
				if c.answer.outcome == "" {
					c.err = err
				}
			}
		},
		Name:       nameOf,
		InFlight:   1,
		Max:        maxBatch,
		Bound:      batchTimeout,
		StuckAfter: batchDelay,
		MinInline:  time.Millisecond,
	}
}

// do makes a call in a batch, or alone if the batch was undone. It awaits a call that is sent until
// graceTime after the deadline of ctx, even if ctx is canceled, so that the release that follows
// does not overtake the call.
func do(ctx context.Context, queue *batch.Queue[*call], c *call) error {
	ctx, cancel := withGrace(ctx)
	defer cancel()
	switch err := queue.Do(ctx, c); {
	case errors.Is(err, batch.ErrNotSent):
		return err
	case err != nil:
		return fmt.Errorf("no answer from PostgreSQL: %w", context.DeadlineExceeded)
	}
	if errors.Is(c.err, errNotTogether) {
		queue.Send(ctx, []*call{c})
	}
	return c.err
}

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	if err := errors.Join(s.checkUsable(ctx), lockqueue.Check(&req)); err != nil {
		return res, err
	}
	s.notices.Expect(req.Name, req.Owner, max(req.TTL, req.Place))
	c := &call{name: req.Name, owner: req.Owner, req: req}
	if err := do(ctx, s.acquires, c); err != nil {
		if driver.IsNotApplied(err) {
			s.notices.Forget(req.Name, req.Owner)
		}
		return res, err
	}
	s.maybeSweep()
	switch c.answer.outcome {
	case "again":
		return res, errors.New("the owner has an entry")
	case "floor":
		err = fmt.Errorf("%w: the floor of the token is more than %v above the server's clock", driver.ErrInvalid, driver.MaxLead)
	case "held", "waiting":
		res = driver.Result{Granted: c.answer.outcome == "held", Waiting: c.answer.outcome == "waiting", Token: c.answer.token}
		if !s.notices.None() { // as at a node of a quorum
			s.listening.Do(func() { s.goBackground(s.listen) })
		}
	}
	if !res.Granted && !res.Waiting {
		s.notices.Forget(req.Name, req.Owner)
	}
	if c.answer.held != nil {
		res.Held = c.answer.held.record()
	}
	return res, err
}

// Renew implements [driver.Store]. Its first statement skips the rows that other transactions have
// locked, and its second one waits for these, so that a locked row delays no other renewal.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := withGrace(ctx)
	defer cancel()
	calls := make([]*call, len(reqs))
	for i, req := range reqs {
		calls[i] = &call{name: req.Name, owner: req.Owner, token: req.Token, time: req.TTL}
		s.notices.Expect(req.Name, req.Owner, req.TTL)
	}
	err := s.send(ctx, s.acquireInTime, renewText, calls, renewArgs)
	states := map[string]driver.State{"held": driver.Held, "waiting": driver.Waiting, "lost": driver.Lost}
	entries := make([]driver.Entry, len(reqs))
	for i, c := range calls {
		entries[i] = driver.Entry{State: states[c.answer.outcome], Token: c.answer.token}
		if entries[i].State == driver.Lost {
			s.notices.Forget(c.name, c.owner)
		}
	}
	return entries, err
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return false, err
	}
	c := &call{name: req.Name, owner: req.Owner, time: req.Keep}
	if err := do(ctx, s.releases, c); err != nil {
		return false, err
	}
	s.notices.Forget(req.Name, req.Owner)
	return c.answer.outcome == "ended", nil
}

// A heldRow has the holds of a name.
type heldRow struct {
	Held []holdJSON
	Told []string
}

func (s *Store) queryHeld(ctx context.Context, text string, args ...any) ([]driver.Record, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := withGrace(ctx)
	defer cancel()
	rows, err := query(ctx, s, s.pool.Acquire, text, args, pgx.RowToStructByPos[heldRow])
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	s.tell(ctx, rows[0].Told)
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
			if err := s.checkUsable(ctx); err != nil {
				yield(driver.Record{}, err)
				return
			}
			rows, err := query(ctx, s, s.pool.Acquire, "SELECT name, held, told FROM @.list($1, $2, $3)",
				[]any{prefix, after, int64(pageSize)}, pgx.RowToStructByPos[row])
			if err != nil {
				yield(driver.Record{}, err)
				return
			}
			var told []string
			for _, row := range rows {
				told = append(told, row.Told...)
			}
			s.tell(ctx, told)
			for _, row := range rows {
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

const sweepEvery = 500

// maybeSweep deletes rows of names that have been free for long, after one in sweepEvery
// acquisitions, and once a minute at most. The choice is random, since many processes acquire one
// lock only.
func (s *Store) maybeSweep() {
	now, last := time.Now().Unix(), s.sweptAt.Load()
	if rand.IntN(sweepEvery) > 0 || now-last < 60 || !s.sweptAt.CompareAndSwap(last, now) {
		return
	}
	s.goBackground(func() {
		ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
		defer cancel()
		_, _ = query(ctx, s, s.pool.Acquire, "SELECT @.sweep_locks()", nil, pgx.RowTo[int64]) // After a failure another one does it.
	})
}

// micros rounds up, so that nothing ends too early.
func micros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

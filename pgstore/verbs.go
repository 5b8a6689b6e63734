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
	// maxBatch is the maximum size of a batch. Its results are visible when all of it is committed.
	maxBatch = 128

	// batchTimeout bounds a batch. After that its outcome is unknown.
	batchTimeout = 3*time.Second + graceTime

	// batchDelay is how long a batch holds up changes of other names. It is longer than a busy
	// server and its disk take, and less than anybody notices when a connection hangs.
	batchDelay = 50 * time.Millisecond

	// pageSize is how many names a List fetches at once. No connection is kept while the caller
	// processes them.
	pageSize = 1000
)

// A call is one Acquire or Release, with its answer or an error.
type call struct {
	name   string
	req    driver.Request        // of an Acquire
	end    driver.ReleaseRequest // of a Release
	answer *answer
	err    error
}

// An answer is that of the server to a call.
type answer struct {
	Name    string
	Outcome string
	Token   int64
	Held    *holdJSON
	Told    []string // whom to notify
}

// A verb sends the calls of many goroutines together, one batch at a time unless one hangs: the
// commit is what costs, and it gathers. The first statement does what is usual. What it leaves of a
// batch is for the second one, in a transaction of its own: so no batch waits for a row while it
// has locked another out of order.
type verb struct {
	s             *Store
	first, second string
	args          func(calls []*call) []any
	queue         batch.Queue[*call]
}

// init sets up the verb. text is its statement, with %s for the name of the function.
func (v *verb) init(s *Store, text, first, second string) {
	v.s = s
	v.first, v.second = fmt.Sprintf(text, first), fmt.Sprintf(text, second)
	v.queue = batch.Queue[*call]{
		Send:       v.send,
		Name:       func(c *call) string { return c.name },
		InFlight:   1,
		Max:        maxBatch,
		Bound:      batchTimeout,
		StuckAfter: batchDelay,
		MinInline:  time.Millisecond,
	}
}

// errNotTogether means that the server has undone a batch, because of one of its calls. Each caller
// then makes its call alone, so that a row that another transaction has locked holds up no other.
var errNotTogether = driver.NotApplied(errors.New("the batch was undone"))

// send sends a batch, and of each name its first call alone at first.
func (v *verb) send(ctx context.Context, calls []*call) {
	slices.SortStableFunc(calls, func(c, d *call) int { return strings.Compare(c.name, d.name) })
	err := v.ask(ctx, v.first, slices.CompactFunc(slices.Clone(calls), func(c, d *call) bool { return c.name == d.name }))
	rest := slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return c.answer != nil })
	if err == nil && len(rest) > 0 {
		err = v.ask(ctx, v.second, rest)
	}
	if driver.IsNotApplied(err) && len(calls) > 1 {
		err = errNotTogether
	}
	for _, c := range calls {
		c.err = nil // that of a batch that was undone
		if c.answer == nil {
			c.err = err
		}
	}
}

// ask sends calls in one statement. The answers come in their order.
func (v *verb) ask(ctx context.Context, text string, calls []*call) error {
	answers, err := query(ctx, v.s, v.s.acquire, text, v.args(calls), pgx.RowToStructByPos[answer])
	if err != nil {
		return err
	}
	for _, c := range calls {
		if len(answers) > 0 && answers[0].Name == c.name {
			c.answer, answers = &answers[0], answers[1:]
			v.s.tell(c.answer.Told)
		}
	}
	return nil
}

// do sends a call in a batch, or alone if that was undone. A call that is sent is awaited for
// graceTime beyond the deadline of ctx, canceled or not, so that the release that follows does not
// overtake it.
func (v *verb) do(ctx context.Context, c *call) (*answer, error) {
	ctx, cancel := withGrace(ctx)
	defer cancel()
	switch err := v.queue.Do(ctx, c); {
	case errors.Is(err, batch.ErrNotSent):
		return nil, driver.NotApplied(err)
	case err != nil:
		return nil, fmt.Errorf("no answer from PostgreSQL: %w", context.DeadlineExceeded)
	}
	if errors.Is(c.err, errNotTogether) {
		v.send(ctx, []*call{c})
	}
	return c.answer, c.err
}

func (s *Store) initVerbs() {
	s.acquires.args = func(calls []*call) []any {
		n := len(calls)
		names, owners, holders, metadata := make([]string, n), make([]string, n), make([]string, n), make([]*string, n)
		ttls, places, floors := make([]int64, n), make([]int64, n), make([]int64, n)
		limits, tokens := make([]int32, n), make([]int32, n)
		for i, c := range calls {
			names[i], owners[i], holders[i], metadata[i] = c.name, c.req.Owner, c.req.Holder, encodeMetadata(c.req.Metadata)
			ttls[i], places[i], floors[i] = micros(c.req.TTL), micros(c.req.Place), c.req.Floor
			limits[i], tokens[i] = int32(max(c.req.Limit, 1)), int32(max(c.req.Tokens, 1))
		}
		return []any{names, owners, holders, ttls, places, limits, tokens, floors, metadata, s.listener.channel}
	}
	s.acquires.init(s, "SELECT name, outcome, token, held, told FROM @.%s($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)", "take", "enter")

	s.releases.args = func(calls []*call) []any {
		n := len(calls)
		names, owners, keeps := make([]string, n), make([]string, n), make([]int64, n)
		for i, c := range calls {
			names[i], owners[i], keeps[i] = c.name, c.end.Owner, micros(c.end.Keep)
		}
		return []any{names, owners, keeps}
	}
	s.releases.init(s, "SELECT name, CASE WHEN ended THEN 'ended' ELSE '' END, 0::bigint, NULL::jsonb, told FROM @.%s($1, $2, $3)", "give", "leave")
}

// Acquire implements [driver.Store].
func (s *Store) Acquire(ctx context.Context, req driver.Request) (res driver.Result, err error) {
	if err := errors.Join(s.checkUsable(ctx), lockqueue.Check(&req)); err != nil {
		return res, err
	}
	s.listener.notices.Expect(req.Name, req.Owner, max(req.TTL, req.Place))
	answer, err := s.acquires.do(ctx, &call{name: req.Name, req: req})
	if err != nil {
		return res, err
	}
	s.maybeSweep()
	switch answer.Outcome {
	case "again":
		return res, errors.New("the owner has an entry")
	case "floor":
		err = fmt.Errorf("%w: the floor of the token is more than %v above the server's clock", driver.ErrInvalid, driver.MaxLead)
	case "last":
		err = fmt.Errorf("%w: the name has had the greatest token that there is", driver.ErrInvalid)
	case "held", "waiting":
		res = driver.Result{Granted: answer.Outcome == "held", Waiting: answer.Outcome == "waiting", Token: answer.Token}
		s.startListening(res.Waiting)
	}
	if !res.Granted && !res.Waiting {
		s.listener.notices.Forget(req.Name, req.Owner)
	}
	if answer.Held != nil {
		res.Held = answer.Held.record()
	}
	return res, err
}

// Renew implements [driver.Store]. It passes over rows that other transactions have locked, and
// then waits for them a while, so that one of them costs no other its time.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.Entry, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	type row struct {
		Item    int
		Outcome string
		Token   int64
		Told    []string
	}
	states := map[string]driver.State{"held": driver.Held, "waiting": driver.Waiting, "lost": driver.Lost}
	entries := make([]driver.Entry, len(reqs))
	for try := 0; ; try++ {
		var left []int
		var names, owners []string
		var tokens, ttls []int64
		for i, req := range reqs {
			if entries[i].State == driver.Unknown {
				left, names, owners = append(left, i), append(names, req.Name), append(owners, req.Owner)
				tokens, ttls = append(tokens, req.Token), append(ttls, micros(req.TTL))
				s.listener.notices.Expect(req.Name, req.Owner, req.TTL)
			}
		}
		switch {
		case len(left) == 0:
			return entries, nil
		case try == 2:
			return entries, errors.New("another transaction has locked the row")
		}
		rows, err := query(ctx, s, s.acquireInTime, "SELECT item, outcome, token, told FROM @.renew($1, $2, $3, $4, $5)",
			[]any{names, owners, tokens, ttls, try == 1}, pgx.RowToStructByPos[row])
		for _, row := range rows {
			i := left[row.Item-1]
			s.tell(row.Told)
			if entries[i] = (driver.Entry{State: states[row.Outcome], Token: row.Token}); entries[i].State == driver.Lost {
				s.listener.notices.Forget(reqs[i].Name, reqs[i].Owner)
			}
		}
		if err != nil {
			return entries, err
		}
	}
}

// Release implements [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	if err := s.checkUsable(ctx); err != nil {
		return false, err
	}
	answer, err := s.releases.do(ctx, &call{name: req.Name, end: req})
	if err != nil {
		return false, err
	}
	s.listener.notices.Forget(req.Name, req.Owner)
	return answer.Outcome == "ended", nil
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
	rows, err := query(ctx, s, s.acquire, text, args, pgx.RowToStructByPos[heldRow])
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
			if err := s.checkUsable(ctx); err != nil {
				yield(driver.Record{}, err)
				return
			}
			rows, err := query(ctx, s, s.acquire, "SELECT name, held, told FROM @.list($1, $2, $3)",
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
		_, _ = query(ctx, s, s.acquire, "SELECT @.sweep_locks()", nil, pgx.RowTo[int64]) // The next one makes up for a failure.
	})
}

// micros rounds up, so that nothing ends too early.
func micros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

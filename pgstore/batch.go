package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/batch"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

const (
	// maxUnbatched is how many changes may be in flight on their own before others are batched.
	// With fewer in flight the server has time left, and waiting for others costs more than it
	// saves.
	maxUnbatched = 4

	// maxBatch is the maximum size of a batch. The results of a batch are visible only when all of
	// it is committed.
	maxBatch = 128

	// batchTimeout bounds a batch. After that its outcome is unknown.
	batchTimeout = 3 * time.Second

	// batchDelay is how long a batch holds up changes of other names. It is longer than a busy
	// server and its disk take, and less than anybody notices when a connection hangs.
	batchDelay = 50 * time.Millisecond
)

// A rowChange is a change that goes in a batch if there are many at once: a plain release, or the
// acquisition of a name that is free and in the table, if the name has no waiters. The changes of a
// batch share one round trip and one commit. A batch waits for no row, so that a locked row holds
// up no other lock, and no two batches wait for each other. The row of a change that a batch does
// not decide is as it was: the caller then makes the change on its own, which finds out why.
type rowChange struct {
	name, owner string
	acquire     *olddriver.AcquireRequest // nil for a release
	metadata    string                    // of acquire, encoded

	decided   bool // the rest is the outcome
	applied   bool
	token     int64  // of an acquisition
	lastToken *int64 // the column last_token
	err       error
}

// tokens returns how many tokens an acquisition was granted. A last_token below the token is that of
// an earlier grant.
func (c *rowChange) tokens() int { return int(max(valueOrZero(c.lastToken)-c.token, 0)) + 1 }

// newBatches returns the queue of the changes.
func (s *engine) newBatches() *batch.Queue[*rowChange] {
	return &batch.Queue[*rowChange]{
		Send:       func(_ context.Context, deadline time.Time, changes []*rowChange) { s.sendChanges(deadline, changes) },
		SendSolo:   func(ctx context.Context, _ time.Time, changes []*rowChange) { s.changeAlone(ctx, changes[0]) },
		Name:       func(change *rowChange) string { return change.name },
		Max:        maxBatch,
		Bound:      batchTimeout,
		StuckAfter: batchDelay,
		MinInline:  batchTimeout / 3,
		Solo:       maxUnbatched,
	}
}

// makeChange makes a change, on its own or in a batch. It returns an error if the change has not
// been sent, or if its outcome is not known. Otherwise change has the outcome, if there is one.
func (s *engine) makeChange(ctx context.Context, change *rowChange) error {
	err := s.batches.Do(graceContext{ctx}, change)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, batch.ErrNotSent):
		return fmt.Errorf("no answer from PostgreSQL: %w", context.DeadlineExceeded)
	case ctx.Err() != nil:
		return driver.NotApplied(ctx.Err())
	}
	return driver.NotApplied(context.DeadlineExceeded)
}

// A graceContext has a deadline graceTime after that of its parent, and ends with its parent. A
// change is therefore not sent after the end of the parent, but one that is sent is awaited for
// graceTime more, as every statement is, so that the release that follows does not overtake it.
type graceContext struct{ context.Context }

// Deadline implements [context.Context].
func (c graceContext) Deadline() (time.Time, bool) {
	deadline, ok := c.Context.Deadline()
	return deadline.Add(graceTime), ok
}

// sendChanges makes the changes of a batch, and records their outcomes.
func (s *engine) sendChanges(deadline time.Time, changes []*rowChange) {
	if !s.beginBackground() {
		return // Each caller is refused on its own.
	}
	defer s.background.Done()
	ctx, cancel := context.WithDeadline(s.ctx, deadline.Add(-graceTime)) // A statement has that beyond it.
	defer cancel()
	var releases, acquires []*rowChange
	acquiring := map[string]bool{}
	for _, change := range changes {
		switch {
		case change.acquire != nil:
			acquires = append(acquires, change)
			acquiring[change.owner] = true
		case !acquiring[change.owner]: // else the release is to follow the acquisition, on its own
			releases = append(releases, change)
		}
	}
	err := s.changeTogether(ctx, releases, acquires)
	if err == nil {
		return
	}
	if driver.IsNotApplied(err) {
		err = nil // Each caller makes its change on its own.
	}
	for _, change := range append(releases, acquires...) {
		change.decided, change.err = err != nil, err
	}
}

// changeAlone makes one change by a statement of its own.
func (s *engine) changeAlone(ctx context.Context, change *rowChange) {
	req := change.acquire
	if req == nil {
		if s.nameCache.lastState(change.name) == stateHeld { // else the function takes one statement, and this one more
			var level string
			change.applied, change.err = s.queryOptional(ctx, s.queries.releaseOne, []any{change.name, change.owner}, &level)
		}
		change.decided = change.applied || change.err != nil
		return
	}
	args := []any{req.Name, req.Owner, req.Holder, ceilMicros(req.TTL), req.Floor, change.metadata, min(req.Tokens, olddriver.MaxTokens)}
	change.applied, change.err = s.queryOptional(ctx, s.queries.acquireFree, args, &change.token, &change.lastToken)
	change.decided = change.applied || change.err != nil
}

// changeTogether makes changes in one transaction: the releases and then the acquisitions, which
// may be of names that were released. A transaction without acquisitions does not wait for the disk.
func (s *engine) changeTogether(ctx context.Context, releases, acquires []*rowChange) error {
	return s.queryOnConn(ctx, func(ctx context.Context, c conn, unprepared bool) error {
		for _, change := range releases {
			change.decided = false
		}
		for _, change := range acquires {
			change.decided = false
		}
		release := func(scan scanner) error {
			var position int64 // in the batch, from 1
			var level string
			err := scan(&position, &level)
			if err == nil {
				releases[position-1].decided, releases[position-1].applied = true, true
			}
			return err
		}
		acquire := func(scan scanner) error {
			var position, token int64
			var lastToken *int64
			err := scan(&position, &token, &lastToken)
			if err == nil {
				change := acquires[position-1]
				change.decided, change.applied, change.token, change.lastToken = true, true, token, lastToken
			}
			return err
		}
		if len(acquires) == 0 {
			return c.query(ctx, unprepared, s.queries.releaseBatch, append(releaseArrays(releases), true), release)
		}
		if len(releases) == 0 {
			return c.query(ctx, unprepared, s.queries.acquireBatch, acquireArrays(acquires), acquire)
		}
		if unprepared {
			return driver.NotApplied(errNoPipeline)
		}
		var statements pgx.Batch
		statements.Queue(s.queries.releaseBatch, append(releaseArrays(releases), false)...).Query(eachRow(release))
		statements.Queue(s.queries.acquireBatch, acquireArrays(acquires)...).Query(eachRow(acquire))
		return c.rawConn().SendBatch(ctx, &statements).Close()
	})
}

// errNoPipeline is why statements are not sent together.
var errNoPipeline = errors.New("the connection sends one statement at a time")

func eachRow(row func(scanner) error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			if err := row(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// releaseArrays returns the first arguments of releaseBatchSQL.
func releaseArrays(changes []*rowChange) []any {
	names, owners := make([]string, len(changes)), make([]string, len(changes))
	for i, change := range changes {
		names[i], owners[i] = change.name, change.owner
	}
	return []any{arrayLiteral(names), arrayLiteral(owners)}
}

// acquireArrays returns the arguments of acquireBatchSQL.
func acquireArrays(changes []*rowChange) []any {
	var columns [7][]string
	for _, change := range changes {
		req := change.acquire
		ttl, floor := strconv.FormatInt(ceilMicros(req.TTL), 10), strconv.FormatInt(req.Floor, 10)
		tokens := strconv.Itoa(min(req.Tokens, olddriver.MaxTokens))
		for i, value := range []string{req.Name, req.Owner, req.Holder, ttl, floor, change.metadata, tokens} {
			columns[i] = append(columns[i], value)
		}
	}
	var args []any
	for _, column := range columns {
		args = append(args, arrayLiteral(column))
	}
	return args
}

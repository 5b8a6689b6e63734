package pgstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
	"github.com/holdfast-go/holdfast/pgstore/internal/pgclient"
)

// errRowLocked is why there is no outcome of a renewal.
var errRowLocked = errors.New("another transaction has locked the row")

// lockedTries is how often a renewal retries rows that another transaction has locked, and the
// others bound the pauses before. They are for rows that are locked for a moment, in all about half
// a second: a row that stays locked must not delay the outcomes of the others.
const (
	lockedTries    = 9
	minLockedPause = 2 * time.Millisecond
	maxLockedPause = 100 * time.Millisecond
)

// Renew implements [driver.Store]. All holds are renewed by one statement. A row that another
// transaction has locked, by hand for instance, has no outcome, and costs the others nothing.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	outcomes := make([]driver.RenewOutcome, len(reqs))
	left := make([]int, len(reqs)) // those without an outcome
	for i := range reqs {
		left[i] = i
	}
	// All renewals change rows in the same order, so that they never wait for each other.
	slices.SortFunc(left, func(a, b int) int { return cmp.Compare(reqs[a].Name, reqs[b].Name) })
	for try := 0; len(left) > 0; try++ {
		letters, err := s.renewBatch(ctx, reqs, left)
		if err != nil {
			return outcomes, err
		}
		left = recordOutcomes(outcomes, left, letters)
		if len(left) > 0 && (try == lockedTries || retry.Sleep(ctx, retry.Backoff(try+1, minLockedPause, maxLockedPause)) != nil) {
			return outcomes, errRowLocked
		}
	}
	return outcomes, nil
}

// renewBatch sends the requests at these indices, and returns a letter for each.
func (s *Store) renewBatch(ctx context.Context, reqs []driver.RenewRequest, indices []int) (string, error) {
	names, owners, ttls := make([]string, len(indices)), make([]string, len(indices)), make([]string, len(indices))
	for i, index := range indices {
		req := &reqs[index]
		if err := pgclient.CheckOwner(req.Owner); err != nil {
			return "", err
		}
		names[i], owners[i], ttls[i] = req.Name, req.Owner, strconv.FormatInt(ceilMicros(req.TTL), 10)
	}
	var letters string
	args := []any{arrayLiteral(names), arrayLiteral(owners), arrayLiteral(ttls), s.options.SynchronousCommit, s.options.RequireStandby}
	if err := s.queryRow(ctx, s.queries.renew, args, &letters); err != nil {
		return "", err
	}
	if len(letters) != len(indices) {
		return "", errors.New("the server's answer is not understood: another number of outcomes than of holds")
	}
	return letters, nil
}

// recordOutcomes sets the outcomes of the requests at these indices, and returns those with locked
// rows.
func recordOutcomes(outcomes []driver.RenewOutcome, indices []int, letters string) []int {
	var locked []int
	for i, index := range indices {
		switch letters[i] {
		case 'r':
			outcomes[index] = driver.Renewed
		case 'l':
			outcomes[index] = driver.RenewLost
		default:
			locked = append(locked, index)
		}
	}
	return locked
}

// arrayLiteral writes an array in PostgreSQL's text form, which every driver can send.
func arrayLiteral(elements []string) string {
	var text strings.Builder
	text.WriteByte('{')
	for i, element := range elements {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteByte('"')
		for _, part := range []byte(element) {
			if part == '"' || part == '\\' {
				text.WriteByte('\\')
			}
			text.WriteByte(part)
		}
		text.WriteByte('"')
	}
	text.WriteByte('}')
	return text.String()
}

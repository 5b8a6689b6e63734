package pgstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/internal/olddriver"
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

// Renew implements [olddriver.Store]. All holds are renewed by one statement, and all places, which
// have no token, by another. A row that another transaction has locked, by hand for instance, has
// no outcome, and costs the others nothing.
func (s *engine) Renew(ctx context.Context, reqs []olddriver.RenewRequest) ([]olddriver.RenewOutcome, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	outcomes := make([]olddriver.RenewOutcome, len(reqs))
	var holds, places []int
	for i, req := range reqs {
		if err := pgclient.CheckOwner(req.Owner); err != nil {
			return nil, err
		}
		if req.Token > 0 {
			holds = append(holds, i)
		} else {
			places = append(places, i)
		}
	}
	err := s.renewUntilKnown(context.WithValue(ctx, renewingHolds{}, true), reqs, holds, outcomes)
	return outcomes, cmp.Or(s.renewUntilKnown(ctx, reqs, places, outcomes), err)
}

// renewUntilKnown renews the holds, or the places, at these indices.
func (s *engine) renewUntilKnown(ctx context.Context, reqs []olddriver.RenewRequest, left []int, outcomes []olddriver.RenewOutcome) error {
	// All renewals change rows in the same order, so that they never wait for each other.
	slices.SortFunc(left, func(a, b int) int { return cmp.Compare(reqs[a].Name, reqs[b].Name) })
	for try := 0; len(left) > 0; try++ {
		letters, err := s.renewBatch(ctx, reqs, left)
		if err != nil {
			return err
		}
		left = s.recordOutcomes(reqs, outcomes, left, letters)
		if len(left) > 0 && (try == lockedTries || retry.Sleep(ctx, retry.Backoff(try+1, minLockedPause, maxLockedPause)) != nil) {
			return errRowLocked
		}
	}
	return nil
}

// renewBatch sends the requests at these indices, and returns a letter for each.
func (s *engine) renewBatch(ctx context.Context, reqs []olddriver.RenewRequest, indices []int) (string, error) {
	var names, owners, ttls, tokens []string
	for _, index := range indices {
		req := &reqs[index]
		names, owners = append(names, req.Name), append(owners, req.Owner)
		ttls = append(ttls, strconv.FormatInt(ceilMicros(req.TTL), 10))
		tokens = append(tokens, strconv.FormatInt(req.Token, 10))
	}
	text, args := s.queries.refresh, []any{arrayLiteral(names), arrayLiteral(owners), arrayLiteral(ttls)}
	if reqs[indices[0]].Token > 0 {
		text, args = s.queries.renew, append(args, arrayLiteral(tokens))
	}
	var letters string
	if err := s.queryRow(ctx, text, args, &letters); err != nil {
		return "", err
	}
	if len(letters) != len(indices) {
		return "", errors.New("the server's answer is not understood: another number of outcomes than of holds")
	}
	return letters, nil
}

// recordOutcomes sets the outcomes of the requests at these indices, and returns those with locked
// rows. A renewal may have found that it is the turn of another owner, which it notifies.
func (s *engine) recordOutcomes(reqs []olddriver.RenewRequest, outcomes []olddriver.RenewOutcome, indices []int, letters string) []int {
	var locked []int
	var admitted []string
	for i, index := range indices {
		req := &reqs[index]
		switch unicode.ToLower(rune(letters[i])) {
		case 'r':
			outcomes[index] = olddriver.Renewed
		case 'q':
			outcomes[index] = olddriver.RenewQueued
			s.notifier.addWaiter(req.Name, req.Owner, req.TTL)
		case 'l':
			outcomes[index] = olddriver.RenewLost
		default:
			locked = append(locked, index)
		}
		if unicode.IsUpper(rune(letters[i])) {
			admitted = append(admitted, req.Name)
		}
	}
	s.notifyWaiters(admitted...)
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

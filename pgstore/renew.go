package pgstore

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// errLocked is why there is no outcome of a renewal.
var errLocked = errors.New("another transaction has locked the row")

// How often a renewal goes back for rows that another transaction has locked,
// and the pauses before. It is for those that are locked for a moment, in all
// about half a second; one that stays so must not hold up the answer for the
// others.
const (
	lockedTries    = 9
	minLockedPause = 2 * time.Millisecond
	maxLockedPause = 100 * time.Millisecond
)

// Renew implements [driver.Store]. All holds are renewed by one statement. A row
// that another transaction has locked, by hand for instance, has no outcome, and
// costs the others nothing.
func (s *Store) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	outcomes := make([]driver.RenewOutcome, len(reqs))
	left := make([]int, len(reqs)) // those without an outcome
	for i := range reqs {
		left[i] = i
	}
	// All change rows in the same order, so that none waits for each other.
	slices.SortFunc(left, func(a, b int) int { return cmp.Compare(reqs[a].Name, reqs[b].Name) })
	for try := 0; len(left) > 0; try++ {
		letters, err := s.renew(ctx, reqs, left)
		if err != nil {
			return outcomes, err
		}
		left = judge(outcomes, left, letters)
		if len(left) > 0 && (try == lockedTries || !sleep(ctx, lockedPauseBefore(try+1))) {
			return outcomes, errLocked
		}
	}
	return outcomes, nil
}

func lockedPauseBefore(try int) time.Duration {
	pause := min(minLockedPause<<try, maxLockedPause)
	return pause/2 + rand.N(pause/2)
}

// renew sends the requests at these indices, and returns a letter for each.
func (s *Store) renew(ctx context.Context, reqs []driver.RenewRequest, indices []int) (string, error) {
	names, owners, ttls := make([]string, len(indices)), make([]string, len(indices)), make([]string, len(indices))
	for i, index := range indices {
		req := &reqs[index]
		if err := checkOwner(req.Owner); err != nil {
			return "", err
		}
		names[i], owners[i], ttls[i] = req.Name, req.Owner, strconv.FormatInt(micros(req.TTL), 10)
	}
	var letters string
	args := []any{array(names), array(owners), array(ttls), s.options.SynchronousCommit, s.options.RequireStandby}
	if err := s.one(ctx, s.text.renew, args, &letters); err != nil {
		return "", err
	}
	if len(letters) != len(indices) {
		return "", errors.New("the server's answer is not understood: another number of outcomes than of holds")
	}
	return letters, nil
}

// judge notes what became of the requests at these indices, and returns those
// whose rows were locked.
func judge(outcomes []driver.RenewOutcome, indices []int, letters string) []int {
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

// array writes an array as PostgreSQL reads it, which every driver can send.
func array(elements []string) string {
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

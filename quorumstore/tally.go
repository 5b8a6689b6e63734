package quorumstore

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// A tally is the votes of the nodes on one attempt to acquire. It decides by these votes alone.
// Everything that makes fencing tokens unique and rising is in it. See the package comment for the
// reasoning, and model_test.go for the exhaustive proof.
type tally struct {
	need int // how many nodes are a majority

	// The votes, by node. Without an error, the node has granted the attempt, or tells the hold in
	// its way.
	results []driver.Result
	errs    []error
}

// errUndone is the vote of a node that has granted the attempt, and has confirmed its release.
var errUndone = driver.NotApplied(errors.New("granted, and released again"))

// A verdict is the result of the votes on an attempt, in words.
type verdict string

const (
	verdictUndecided     verdict = "" // it depends on votes to come
	verdictWon           verdict = "a majority granted it"
	verdictBusy          verdict = "one hold is in the way at a majority"
	verdictSplit         verdict = "no owner has a majority"
	verdictTokenMismatch verdict = "the tokens granted do not agree"
	verdictUnavailable   verdict = "no majority answered"
	verdictLate          verdict = "granted too late to be relied on"
)

// verdictAfter returns the verdict if waiting nodes that have not voted yet may still do so, and
// the token if it is won.
func (t *tally) verdictAfter(waiting int) (verdict, int64) {
	c := t.count()
	token, agreed := mostCommon(c.tokens)
	inTheWay, replied := len(largestGroup(c.inWay)), c.replied()
	switch {
	case agreed >= t.need:
		return verdictWon, token
	case agreed+waiting >= t.need:
		return verdictUndecided, 0
	case inTheWay >= t.need:
		return verdictBusy, 0
	case replied+waiting < t.need:
		return verdictUnavailable, 0
	case inTheWay+waiting >= t.need || replied < t.need:
		return verdictUndecided, 0
	case len(c.tokens) >= t.need:
		return verdictTokenMismatch, 0
	}
	return verdictSplit, 0
}

// A count is the votes by what they say. Nodes whose errors leave it open are in none of these.
type count struct {
	tokens  []int64         // granted
	inWay   []driver.Record // the holds that were told
	undone  int             // granted, and certainly released
	refused int             // errors of nodes that have never had anything of the attempt
}

func (t *tally) count() (c count) {
	c.tokens = make([]int64, 0, len(t.results))
	for i, err := range t.errs {
		switch res := t.results[i]; {
		case err == nil && res.Granted:
			c.tokens = append(c.tokens, res.Token)
		case err == nil:
			c.inWay = append(c.inWay, res.Held)
		case err == errUndone:
			c.undone++
		case driver.IsNotApplied(err):
			c.refused++
		}
	}
	return c
}

// replied returns how many nodes have granted the attempt or told the hold in its way.
func (c *count) replied() int { return len(c.tokens) + len(c.inWay) + c.undone }

// without returns how many nodes have certainly nothing of the attempt.
func (c *count) without() int { return len(c.inWay) + c.undone + c.refused }

// mostCommon returns the token that most nodes have, and how many these are.
func mostCommon(tokens []int64) (token int64, most int) {
	for _, candidate := range tokens {
		same := 0
		for _, other := range tokens {
			if other == candidate {
				same++
			}
		}
		if same > most {
			token, most = candidate, same
		}
	}
	return token, most
}

// largestGroup returns the largest group of records that belong to one hold, the one with the most
// time left first.
func largestGroup(records []driver.Record) []driver.Record {
	var best []driver.Record
	for _, rec := range records {
		same := slices.DeleteFunc(slices.Clone(records), func(other driver.Record) bool { return !sameHold(rec, other) })
		if len(same) > len(best) {
			best = same
		}
	}
	slices.SortStableFunc(best, func(a, b driver.Record) int { return cmp.Compare(b.Remaining, a.Remaining) })
	return best
}

// sameHold reports whether the records of two nodes belong to one hold.
func sameHold(a, b driver.Record) bool {
	return a.Holder == b.Holder && a.Kept == b.Kept && a.Token == b.Token && maps.Equal(a.Metadata, b.Metadata)
}

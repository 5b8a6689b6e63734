package quorumstore

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

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
	verdictLost          verdict = "it was found lost meanwhile"
)

// The votes are the replies of the nodes to one attempt to acquire. They decide it alone.
// Everything that makes fencing tokens unique and rising is in verdict. See the package comment for
// the reasoning, and model_test.go for the exhaustive proof. Nodes whose errors leave it open have
// no vote.
type votes struct {
	need    int             // how many nodes are a majority
	tokens  []int64         // granted
	inWay   []driver.Record // the holds that were told
	undone  int             // granted, and certainly released
	refused int             // errors of nodes that have never had anything of the attempt
}

// countVotes counts replies. One without an error is a grant, or the hold in the way of it.
func countVotes(need int, results []driver.Result, errs []error) votes {
	v := votes{need: need, tokens: make([]int64, 0, len(results))}
	for i, err := range errs {
		switch res := results[i]; {
		case err == nil && res.Granted:
			v.tokens = append(v.tokens, res.Token)
		case err == nil:
			v.inWay = append(v.inWay, res.Held)
		case err == errUndone:
			v.undone++
		case driver.IsNotApplied(err):
			v.refused++
		}
	}
	return v
}

// replied returns how many nodes have granted the attempt or told the hold in its way.
func (v *votes) replied() int { return len(v.tokens) + len(v.inWay) + v.undone }

// without returns how many nodes have certainly nothing of the attempt.
func (v *votes) without() int { return len(v.inWay) + v.undone + v.refused }

// verdict returns the verdict if waiting nodes that have not voted yet may still do so, and the
// token if it is won.
func (v *votes) verdict(waiting int) (verdict, int64) {
	token, agreed := mostCommon(v.tokens)
	inTheWay, replied := len(largestGroup(v.inWay)), v.replied()
	switch {
	case agreed >= v.need:
		return verdictWon, token
	case agreed+waiting >= v.need:
		return verdictUndecided, 0
	case inTheWay >= v.need:
		return verdictBusy, 0
	case replied+waiting < v.need:
		return verdictUnavailable, 0
	case inTheWay+waiting >= v.need || replied < v.need:
		return verdictUndecided, 0
	case len(v.tokens) >= v.need:
		return verdictTokenMismatch, 0
	}
	return verdictSplit, 0
}

// mostCommon returns the token that most nodes have, and how many these are.
func mostCommon(tokens []int64) (token int64, most int) {
	counts := make(map[int64]int, len(tokens))
	for _, t := range tokens {
		if counts[t]++; counts[t] > most {
			token, most = t, counts[t]
		}
	}
	return token, most
}

// largestGroup returns the records of the hold or keep that has most of them: the smallest token
// first, and then the longest time left.
func largestGroup(records []driver.Record) []driver.Record {
	var best []driver.Record
	for _, rec := range records {
		same := slices.DeleteFunc(slices.Clone(records), func(other driver.Record) bool { return !sameHold(rec, other) })
		if len(same) > len(best) {
			best = same
		}
	}
	slices.SortStableFunc(best, func(a, b driver.Record) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(b.Remaining, a.Remaining))
	})
	return best
}

// sameHold reports whether the records of two nodes belong to one hold, or are keeps of one hold.
func sameHold(a, b driver.Record) bool {
	return a.Holder == b.Holder && a.Kept == b.Kept && (a.Kept || a.Token == b.Token) && maps.Equal(a.Metadata, b.Metadata)
}

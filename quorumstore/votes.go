package quorumstore

import (
	"cmp"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

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
	refused int             // errors of nodes that have never had anything of the attempt
}

// add counts a reply. One without an error is a grant, or the hold in the way of it.
func (v *votes) add(res driver.Result, err error) {
	switch {
	case err == nil && res.Granted:
		v.tokens = append(v.tokens, res.Token)
	case err == nil:
		v.inWay = append(v.inWay, res.Held)
	case driver.IsNotApplied(err):
		v.refused++
	}
}

// replied returns how many nodes have granted the attempt or told the hold in its way.
func (v *votes) replied() int { return len(v.tokens) + len(v.inWay) }

// without returns how many nodes have certainly nothing of the attempt.
func (v *votes) without() int { return len(v.inWay) + v.refused }

// verdict returns the verdict if waiting nodes that have not voted yet may still do so, and the
// token if it is won.
func (v *votes) verdict(waiting int) (verdict, int64) {
	token, agreed := mostCommon(v.tokens)
	_, inTheWay := mostlyHeld(v.inWay)
	replied := v.replied()
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
func mostCommon(tokens []int64) (int64, int) {
	return largestGroup(tokens, func(a, b int64) bool { return a == b })
}

// mostlyHeld returns the hold or keep that has most of the records, and how many these are. Its
// record is the one with the smallest token, and then the longest time left. It sorts the records.
func mostlyHeld(records []driver.Record) (driver.Record, int) {
	slices.SortStableFunc(records, func(a, b driver.Record) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(b.Remaining, a.Remaining))
	})
	return largestGroup(records, sameHold)
}

// largestGroup returns the first of those of which there are most, and how many these are.
func largestGroup[T any](all []T, same func(a, b T) bool) (first T, most int) {
	for _, one := range all {
		n := 0
		for _, other := range all {
			if same(one, other) {
				n++
			}
		}
		if n > most {
			first, most = one, n
		}
	}
	return first, most
}

// sameHold reports whether the records of two nodes belong to one hold, or are keeps of one hold.
func sameHold(a, b driver.Record) bool {
	return a.Holder == b.Holder && a.Kept == b.Kept && (a.Kept || a.Token == b.Token) && maps.Equal(a.Metadata, b.Metadata)
}

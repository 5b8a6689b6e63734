package quorumstore

import (
	"errors"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// A tally is the votes of the nodes on one attempt to acquire. It decides by these votes alone.
// Everything that makes fencing tokens unique and rising is in it. See the package comment for the
// reasoning, and model_test.go for the exhaustive proof.
type tally struct {
	need   int  // how many nodes are a majority
	fenced bool // tokens must agree
	votes  []vote
}

type vote struct {
	cast    bool
	granted bool
	token   int64
	held    driver.Record // the blocking hold
	err     error
	undone  bool // the node has confirmed that the grant is released
}

// A verdict is the result of the votes on an attempt.
type verdict uint8

const (
	verdictUndecided     verdict = iota // it depends on votes to come
	verdictWon                          // a majority granted, under one token
	verdictBusy                         // one hold blocks a majority
	verdictSplit                        // no owner is known to have a majority
	verdictTokenMismatch                // a majority granted, but under different tokens
	verdictUnavailable                  // too few replied
	verdictLate                         // a majority granted, too late to be relied on
)

// verdictAfter returns the verdict if waiting nodes that have not voted yet may still do so, and
// the token if it is won.
func (t *tally) verdictAfter(waiting int) (verdict, int64) {
	granted, refused := 0, 0
	for _, v := range t.votes {
		switch {
		case v.granted:
			granted++
		case v.cast && v.err == nil:
			refused++
		}
	}
	token, agreed := t.majorityToken()
	_, inTheWay := t.blockingHold()
	switch {
	case agreed >= t.need:
		return verdictWon, token
	case agreed+waiting >= t.need:
		return verdictUndecided, 0
	case inTheWay >= t.need:
		return verdictBusy, 0
	case granted+refused+waiting < t.need:
		return verdictUnavailable, 0
	case inTheWay+waiting >= t.need || granted+refused < t.need:
		return verdictUndecided, 0
	case granted >= t.need:
		return verdictTokenMismatch, 0
	}
	return verdictSplit, 0
}

// majorityToken returns the token that most nodes granted, and their number.
func (t *tally) majorityToken() (token int64, agreed int) {
	for _, v := range t.votes {
		if !v.granted {
			continue
		}
		same := 0
		for _, other := range t.votes {
			if other.granted && (other.token == v.token || !t.fenced) {
				same++
			}
		}
		if same > agreed {
			token, agreed = v.token, same
		}
	}
	if !t.fenced {
		token = 0
	}
	return token, agreed
}

// greatestToken returns the greatest token granted.
func (t *tally) greatestToken() int64 {
	var greatest int64
	for _, v := range t.votes {
		if v.granted {
			greatest = max(greatest, v.token)
		}
	}
	return greatest
}

// blockingHold returns the hold that most nodes gave as the reason to refuse, with the most time that
// one of them has left, and their number.
func (t *tally) blockingHold() (driver.Record, int) {
	var refusals []driver.Record
	for _, v := range t.votes {
		if v.cast && v.err == nil && !v.granted {
			refusals = append(refusals, v.held)
		}
	}
	if len(refusals) == 0 {
		return driver.Record{}, 0
	}
	group := largestGroup(refusals)
	return group[0], len(group)
}

// mayWin reports whether the nodes that left open what became of the attempt may have made a majority
// with those that granted it. If nodes have announced that they will serve later, their time is
// better than that of the others.
func (t *tally) mayWin() bool {
	have := 0
	for _, v := range t.votes {
		var retry *driver.RetryError
		if errors.As(v.err, &retry) {
			return false
		}
		if v.granted || !v.cast || v.err != nil && !driver.IsNotApplied(v.err) {
			have++
		}
	}
	return have >= t.need
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
	slices.SortStableFunc(best, func(a, b driver.Record) int { return int(min(max(b.Remaining-a.Remaining, -1), 1)) })
	return best
}

// sameHold reports whether the records of two nodes belong to one hold.
func sameHold(a, b driver.Record) bool {
	return a.Holder == b.Holder && a.Kept == b.Kept && a.Token == b.Token && maps.Equal(a.Metadata, b.Metadata)
}

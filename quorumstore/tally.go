package quorumstore

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
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
	held    olddriver.Record // the blocking hold
	err     error
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

// blockingHold returns the hold that most nodes gave as the reason to refuse, and their number.
func (t *tally) blockingHold() (olddriver.Record, int) {
	var refusals []olddriver.Record
	for _, v := range t.votes {
		if v.cast && v.err == nil && !v.granted {
			refusals = append(refusals, v.held)
		}
	}
	if len(refusals) == 0 {
		return olddriver.Record{}, 0
	}
	group := largestGroup(refusals)
	return group[0], len(group)
}

// describeRefusal returns the blocking hold, with the time until a majority may be free.
func (t *tally) describeRefusal() olddriver.Record {
	rec, _ := t.blockingHold()
	rec.Remaining = 0
	free := 0
	var ends []time.Duration
	for _, v := range t.votes {
		switch {
		case v.granted:
			free++
		case v.cast && v.err == nil && v.held.Remaining > 0:
			ends = append(ends, v.held.Remaining)
		}
	}
	slices.Sort(ends)
	if missing := t.need - free; missing > 0 && missing <= len(ends) {
		rec.Remaining = ends[missing-1]
	}
	return rec
}

// publicVote returns the vote in the form of an Error.
func (v vote) publicVote() Vote {
	switch {
	case v.err != nil:
		return Vote{Err: v.err}
	case v.granted && v.token > 0:
		return Vote{Answer: fmt.Sprintf("granted token %d", v.token)}
	case v.granted:
		return Vote{Answer: "granted"}
	}
	return Vote{Answer: describeHold(v.held), Held: olddriver.NewRecord(v.held)}
}

// largestGroup returns the largest group of records that belong to one hold, the one with the most
// time left first.
func largestGroup(records []olddriver.Record) []olddriver.Record {
	var best []olddriver.Record
	for _, rec := range records {
		same := slices.DeleteFunc(slices.Clone(records), func(other olddriver.Record) bool { return !sameHold(rec, other) })
		if len(same) > len(best) {
			best = same
		}
	}
	slices.SortStableFunc(best, func(a, b olddriver.Record) int { return int(min(max(b.Remaining-a.Remaining, -1), 1)) })
	return best
}

// sameHold reports whether the records of two nodes belong to one hold. The tokens of a kept name are
// not compared: not every store knows them, and the last node to grant the hold may have given it
// another token than the majority.
func sameHold(a, b olddriver.Record) bool {
	return a.Holder == b.Holder && a.Kept == b.Kept && (a.Kept || a.Token == b.Token)
}

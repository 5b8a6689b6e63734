package quorumstore

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A ballot is the votes of the nodes on one attempt to acquire. It decides
// alone by what the nodes said; everything that makes fencing tokens unique and
// rising is in it. See the package comment for the reasoning, and model_test.go
// for the proof by exhaustion.
type ballot struct {
	need   int  // how many nodes are a majority
	fenced bool // tokens must agree
	votes  []vote
}

type vote struct {
	cast    bool
	granted bool
	token   int64
	held    driver.Record // what was in the way
	err     error
}

// A verdict is what the votes on an attempt amount to.
type verdict uint8

const (
	open        verdict = iota // it depends on votes to come
	won                        // a majority granted, under one token
	busy                       // one hold is in the way on a majority
	split                      // nobody is known to have a majority
	disunited                  // a majority granted, but under different tokens
	unavailable                // too few answered
	late                       // a majority granted, too late to be relied on
)

// count returns the verdict if waiting nodes that have not voted yet may still
// do so, and the token if it is won.
func (b *ballot) count(waiting int) (verdict, int64) {
	granted, refused := 0, 0
	for _, v := range b.votes {
		switch {
		case v.granted:
			granted++
		case v.cast && v.err == nil:
			refused++
		}
	}
	token, agreed := b.token()
	_, inTheWay := b.inTheWay()
	switch {
	case agreed >= b.need:
		return won, token
	case agreed+waiting >= b.need:
		return open, 0
	case inTheWay >= b.need:
		return busy, 0
	case granted+refused+waiting < b.need:
		return unavailable, 0
	case inTheWay+waiting >= b.need || granted+refused < b.need:
		return open, 0
	case granted >= b.need:
		return disunited, 0
	}
	return split, 0
}

// token returns the token that most nodes granted, and how many did.
func (b *ballot) token() (token int64, agreed int) {
	for _, v := range b.votes {
		if !v.granted {
			continue
		}
		same := 0
		for _, other := range b.votes {
			if other.granted && (other.token == v.token || !b.fenced) {
				same++
			}
		}
		if same > agreed {
			token, agreed = v.token, same
		}
	}
	if !b.fenced {
		token = 0
	}
	return token, agreed
}

// greatest returns the greatest token granted.
func (b *ballot) greatest() int64 {
	var greatest int64
	for _, v := range b.votes {
		if v.granted {
			greatest = max(greatest, v.token)
		}
	}
	return greatest
}

// inTheWay returns the hold that most nodes gave as the reason to refuse, and
// how many did.
func (b *ballot) inTheWay() (driver.Record, int) {
	var refusals []driver.Record
	for _, v := range b.votes {
		if v.cast && v.err == nil && !v.granted {
			refusals = append(refusals, v.held)
		}
	}
	group := largest(refusals)
	if len(group) == 0 {
		return driver.Record{}, 0
	}
	return group[0], len(group)
}

// refusal describes what was in the way, and when a majority may be free.
func (b *ballot) refusal() driver.Record {
	rec, _ := b.inTheWay()
	rec.Remaining = 0
	free := 0
	var ends []time.Duration
	for _, v := range b.votes {
		switch {
		case v.granted:
			free++
		case v.cast && v.err == nil && v.held.Remaining > 0:
			ends = append(ends, v.held.Remaining)
		}
	}
	slices.Sort(ends)
	if missing := b.need - free; missing > 0 && missing <= len(ends) {
		rec.Remaining = ends[missing-1]
	}
	return rec
}

// say returns a vote in words.
func (v vote) say() Vote {
	switch {
	case v.err != nil:
		return Vote{Err: v.err}
	case v.granted && v.token > 0:
		return Vote{Answer: fmt.Sprintf("granted token %d", v.token)}
	case v.granted:
		return Vote{Answer: "granted"}
	}
	return Vote{Answer: describe(v.held), Held: v.held}
}

// largest returns the greatest number of records that are of one hold, the one
// with the most time left first.
func largest(records []driver.Record) []driver.Record {
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

// sameHold reports whether two nodes speak of one hold, as far as can be told: of
// a name that is kept not every store knows the token.
func sameHold(a, b driver.Record) bool {
	unknown := a.Kept && (a.Token == 0 || b.Token == 0)
	return a.Holder == b.Holder && a.Kept == b.Kept && (a.Token == b.Token || unknown)
}

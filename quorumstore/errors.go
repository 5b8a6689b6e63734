package quorumstore

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// An Error means that no majority of the nodes could be reached for a request, and lists the vote
// of each node. Use errors.As.
//
// It matches the errors of the nodes only where they hold for the whole: a permanent one (see
// [driver.Permanent]) if so many nodes return such errors that trying again is in vain, and
// [driver.ErrNotApplied] if nothing was changed on any node; for an Acquire, if so many nodes
// refused it that the others, where it is released again, are no majority. The reply of a single
// node is in Votes.
type Error struct {
	// Need is how many nodes are a majority.
	Need int

	// Votes has an entry for every node, in the order of New.
	Votes []Vote

	reason string
	causes []error
}

// A Vote is the reply of one node.
type Vote struct {
	// Node is the number of the node, counted from 1 in the order of New.
	Node int

	// Store is what kind of store it is.
	Store string

	// Answer is the reply, in a few words for people; empty if Err is set.
	Answer string

	// Held is the hold that it reported, if it reported one.
	Held driver.Record

	// Err is why there is no answer.
	Err error
}

// Error lists the votes.
func (e *Error) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s (%d of %d nodes are needed)", e.reason, e.Need, len(e.Votes))
	for _, v := range e.Votes {
		fmt.Fprintf(&text, "; node %d (%s): ", v.Node, v.Store)
		if v.Err != nil {
			text.WriteString(v.Err.Error())
		} else {
			text.WriteString(v.Answer)
		}
	}
	return text.String()
}

// Unwrap returns the errors that the votes justify.
func (e *Error) Unwrap() []error { return e.causes }

// quorumError makes the Error of an operation from a vote for each node. The cause, if there is
// one, is the end of the caller's ctx or of the Store.
func (s *engine) quorumError(reason string, cause error, votes func(n *node) Vote) *Error {
	e := &Error{Need: s.need, reason: reason}
	var permanent []error
	unchanged := true
	for _, n := range s.nodes {
		v := votes(n)
		v.Node, v.Store = n.index+1, n.guarantees.Store
		e.Votes = append(e.Votes, v)
		if driver.Permanent(v.Err) {
			permanent = append(permanent, v.Err)
		}
		unchanged = unchanged && v.Err != nil && driver.IsNotApplied(v.Err)
	}
	switch {
	case cause != nil:
		e.causes = append(e.causes, cause)
	case len(s.nodes) == 1 && e.Votes[0].Err != nil:
		e.causes = append(e.causes, e.Votes[0].Err)
	case len(permanent) > len(s.nodes)-s.need:
		e.causes = permanent
	case unchanged:
		e.causes = append(e.causes, driver.ErrNotApplied)
	}
	return e
}

// describeHold describes the holder of a name in words.
func describeHold(rec olddriver.Record) string {
	switch {
	case rec.Kept:
		return "kept after its release"
	case rec.Holder == "":
		return "held"
	}
	return "held by " + rec.Holder
}

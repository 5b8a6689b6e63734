package quorumstore

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// An Error means that no majority of the nodes could be reached for a request, and lists the vote
// of each node. Use errors.As.
//
// It matches the errors of the nodes only where they hold for the whole: a permanent one (see
// [driver.Permanent]) if so many nodes return such errors that trying again is in vain, and
// [driver.ErrNotApplied] if nothing was changed on any node; for an Acquire, if the nodes that may
// have changed something are no majority. The reply of a single node is in Votes.
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
	// Store is what kind of store the node is.
	Store string

	// Answer is the reply, in a few words for people; empty if Err is set.
	Answer string

	// Err is why there is no answer.
	Err error
}

// Error lists the votes.
func (e *Error) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s (%d of %d nodes are needed)", e.reason, e.Need, len(e.Votes))
	for i, v := range e.Votes {
		fmt.Fprintf(&text, "; node %d (%s): %s", i+1, v.Store, v.Answer)
		if v.Err != nil {
			text.WriteString(v.Err.Error())
		}
	}
	return text.String()
}

// Unwrap returns the errors that the votes justify.
func (e *Error) Unwrap() []error { return e.causes }

// err makes the Error of an operation. describe puts a reply into words.
func (b *ballot[T]) err(reason string, describe func(value T) string) *Error {
	e := &Error{Need: b.s.need, reason: reason}
	var permanent []error
	unchanged := true
	for i, n := range b.s.nodes {
		v := Vote{Store: n.kind, Err: b.errs[i]}
		if v.Err == nil {
			v.Answer = describe(b.values[i])
		}
		e.Votes = append(e.Votes, v)
		if driver.Permanent(v.Err) {
			permanent = append(permanent, v.Err)
		}
		unchanged = unchanged && driver.IsNotApplied(v.Err)
	}
	switch {
	case b.cut != nil:
		e.causes = append(e.causes, b.cut)
	case len(e.Votes) == 1 && e.Votes[0].Err != nil:
		e.causes = append(e.causes, e.Votes[0].Err)
	case len(permanent) > len(e.Votes)-b.s.need:
		e.causes = permanent
	case unchanged:
		e.causes = append(e.causes, driver.ErrNotApplied)
	}
	return e
}

// describeHold describes the holder of a name in words.
func describeHold(rec driver.Record) string {
	switch {
	case rec.Kept:
		return "kept after its release"
	case rec.Holder == "":
		return "held"
	}
	return "held by " + rec.Holder
}

package memstore

import "github.com/holdfast-go/holdfast/internal/lockqueue"

// tokens makes the fencing tokens of a lockTable. One counter serves all names. Each
// grant raises it, to the clock if that is higher: the counter is a clock that never
// falls. A floor does not raise it, so that a floor for one name changes nothing for
// other names. A name with a last token above the counter is remembered until the
// counter has passed that token.
type tokens struct {
	counter        int64
	aheadOfCounter map[string]int64 // the last tokens of names that are above the counter
}

// counterOf returns the counter of a name for its next grant.
func (t *tokens) counterOf(name string, clock int64) lockqueue.Counter {
	return lockqueue.Counter{Last: t.aheadOfCounter[name], Clock: max(t.counter+1, clock)}
}

// record records that the counter of a name has made a grant.
func (t *tokens) record(name string, c *lockqueue.Counter) {
	t.counter = c.Clock
	if c.Last > c.Clock {
		t.aheadOfCounter[name] = c.Last
	} else {
		delete(t.aheadOfCounter, name)
	}
}

// isObsolete reports whether the counter has passed a token, so that the token need
// not be remembered any more.
func (t *tokens) isObsolete(token int64) bool { return token <= t.counter }

package memstore

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// tokens makes the fencing tokens of a space. One counter for all names rises at
// every grant, to the clock if it can: it is a clock that never falls. A floor
// does not raise it, so that what is asked for one name changes nothing for the
// others; a name that was granted more than the counter says is remembered until
// the counter has passed that.
type tokens struct {
	counter int64
	ahead   map[string]int64 // the last token of names, where it is above the counter
}

// next grants a token for a name: above every one it had, and at least floor.
func (t *tokens) next(name string, clock, floor int64) (int64, error) {
	counter := max(t.counter+1, clock)
	token := max(counter, floor, t.ahead[name]+1)
	if token > driver.MaxToken {
		return 0, fmt.Errorf("%w: token %d is above the greatest there is", driver.ErrInvalid, token)
	}
	t.counter = counter
	if token > counter {
		t.ahead[name] = token
	} else {
		delete(t.ahead, name)
	}
	return token, nil
}

// passed reports whether a token of the past need not be remembered any more.
func (t *tokens) passed(token int64) bool { return token <= t.counter }

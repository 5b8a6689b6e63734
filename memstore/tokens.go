package memstore

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// tokens makes the fencing tokens of a lockTable. One counter serves all names. Each
// grant raises it, to the clock if that is higher: the counter is a clock that never
// falls. A floor does not raise it, so that a floor for one name changes nothing for
// other names. A name with a last token above the counter is remembered until the
// counter has passed that token.
type tokens struct {
	counter        int64
	aheadOfCounter map[string]int64 // the last tokens of names that are above the counter
}

// nextToken returns the first of the tokens for a grant of a name, and how many there are, given
// how many are requested. The tokens are above every earlier token of the name, and at least floor.
func (t *tokens) nextToken(name string, clock, floor int64, requested int) (token int64, count int, err error) {
	counter := max(t.counter+1, clock)
	if floor > counter+driver.MaxLead.Microseconds() {
		return 0, 0, fmt.Errorf("%w: the floor %d is more than %v above the clock", driver.ErrInvalid, floor, driver.MaxLead)
	}
	token = max(counter, floor, t.aheadOfCounter[name]+1)
	if token > driver.MaxToken {
		return 0, 0, fmt.Errorf("%w: token %d is above the greatest there is", driver.ErrInvalid, token)
	}
	count = max(1, min(requested, driver.MaxTokens))
	last := token + int64(count) - 1
	if last > min(max(clock, floor)+driver.MaxTokensLead.Microseconds(), driver.MaxToken) {
		count, last = 1, token
	}
	t.counter = counter
	if last > counter {
		t.aheadOfCounter[name] = last
	} else {
		delete(t.aheadOfCounter, name)
	}
	return token, count, nil
}

// isObsolete reports whether the counter has passed a token, so that the token need
// not be remembered any more.
func (t *tokens) isObsolete(token int64) bool { return token <= t.counter }

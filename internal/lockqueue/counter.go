package lockqueue

import (
	"errors"
	"fmt"
	"time"
)

const (
	// MaxToken is the greatest fencing token, and MaxLead how far above the clock the floor of a
	// request may be: those of package driver.
	MaxToken = 1<<53 - 1
	MaxLead  = 24 * time.Hour

	// MaxTokens is the greatest number of tokens in a row. The clock passes so many in a
	// millisecond.
	MaxTokens = 1024

	// maxBlockLead is how far above the clock a hold may begin that is granted several tokens. It
	// bounds how long the clock needs to pass what was granted: a store that has lost its memory
	// and is back sooner may grant these tokens again.
	maxBlockLead = 500 * time.Millisecond
)

var (
	errWeight = errors.New("the weight is above the limit")
	errFloor  = fmt.Errorf("the floor is more than %v above the clock", MaxLead)
	errTokens = errors.New("the name has been granted the greatest token that there is")
)

// A Counter makes the tokens of a name. A token is never granted again, whether it was used or not.
type Counter struct {
	Last  int64 // the greatest that was granted; the store keeps it until its clock has passed it
	Clock int64 // the store's clock in µs since 1970, which does not fall
}

// next returns the token of a grant above a floor.
func (c *Counter) next(floor int64) (int64, error) {
	if floor > c.Clock+MaxLead.Microseconds() {
		return 0, errFloor
	}
	token := max(c.Last+1, c.Clock, floor)
	if token > MaxToken {
		return 0, errTokens
	}
	return token, nil
}

// grant grants an entry its tokens.
func (c *Counter) grant(floor int64, token *int64, tokens *int) error {
	first, err := c.next(floor)
	if err != nil {
		return err
	}
	count := min(max(int64(*tokens), 1), MaxTokens, MaxToken-first+1)
	if first-c.Clock > maxBlockLead.Microseconds() {
		count = 1
	}
	*token, *tokens, c.Last = first, int(count), first+count-1
	return nil
}

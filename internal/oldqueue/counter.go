package oldqueue

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

var (
	errFloor  = fmt.Errorf("%w: the floor is more than %v above the clock", driver.ErrInvalid, driver.MaxLead)
	errTokens = fmt.Errorf("%w: the name has been granted the greatest token that there is", driver.ErrInvalid)
)

// A Counter makes the tokens of a name. A token is never granted again, whether it was used or not.
type Counter struct {
	Last  int64 // the greatest that was granted; the store keeps it until its clock has passed it
	Clock int64 // the store's clock in µs since 1970, which does not fall
}

// next returns the token of a grant above a floor.
func (c *Counter) next(floor int64) (int64, error) {
	if floor > c.Clock+driver.MaxLead.Microseconds() {
		return 0, errFloor
	}
	token := max(c.Last+1, c.Clock, floor)
	if token > driver.MaxToken {
		return 0, errTokens
	}
	return token, nil
}

// grant grants an entry its tokens: one, if the last would be above olddriver.MaxTokensLead.
func (c *Counter) grant(floor int64, token *int64, tokens *int32) error {
	first, err := c.next(floor)
	if err != nil {
		return err
	}
	count := min(max(int64(*tokens), 1), olddriver.MaxTokens, driver.MaxToken-first+1)
	if first+count-1 > max(c.Clock, floor)+olddriver.MaxTokensLead.Microseconds() {
		count = 1
	}
	*token, *tokens, c.Last = first, int32(count), first+count-1
	return nil
}

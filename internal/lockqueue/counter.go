package lockqueue

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// Check returns the error of a request that no store accepts, apart from its Floor above the clock
// of the store, which Counter checks.
func Check(req *driver.Request) error {
	switch {
	case req.Limit < 0 || req.Limit > driver.Shared:
		return fmt.Errorf("%w: the limit is below 0 or above %d", driver.ErrInvalid, driver.Shared)
	case req.Tokens < 0 || req.Tokens > driver.MaxTokens:
		return fmt.Errorf("%w: more than %d tokens are requested", driver.ErrInvalid, driver.MaxTokens)
	case req.Tokens > 1 && (req.Limit > 1 || req.Floor > 0):
		return fmt.Errorf("%w: several tokens with a limit or a floor", driver.ErrInvalid)
	case req.Floor > 0 && req.Place > 0:
		return fmt.Errorf("%w: a floor with a place", driver.ErrInvalid)
	}
	return nil
}

// A Counter makes the tokens of a name. No token is made again, whether it was used or not.
type Counter struct {
	Last  int64 // the greatest that was made; the store keeps it until its clock has passed it
	Clock int64 // the store's clock in µs since 1970, which does not fall
}

// next returns the first of the next count tokens, and leaves it to the caller to take them.
func (c *Counter) next(floor int64, count int) (int64, error) {
	if floor > c.Clock+driver.MaxLead.Microseconds() {
		return 0, fmt.Errorf("%w: the floor is more than %v above the clock", driver.ErrInvalid, driver.MaxLead)
	}
	token := max(c.Last+1, c.Clock, floor)
	if token > driver.MaxToken-int64(count)+1 {
		return 0, fmt.Errorf("%w: the name has had the greatest token that there is", driver.ErrInvalid)
	}
	return token, nil
}

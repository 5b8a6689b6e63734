//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
)

// left returns what the run has left in the store, when the TTLs of those who
// were killed have run out.
func (o *Options) left() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*o.TTL+10*time.Second)
	defer cancel()
	client, err := o.Open(ctx, o.Stores, nil)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var left []string
	for _, name := range o.names() {
		err := client.WaitFree(ctx, name)
		switch {
		case errors.Is(err, holdfast.ErrUnsupported):
			return nil, nil
		case errors.Is(err, context.DeadlineExceeded):
			left = append(left, fmt.Sprintf("%s is held although all have ended", name))
		case err != nil:
			return nil, err
		}
	}
	return left, nil
}

//go:build unix

package ratelimit_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/ratelimit"
)

// TestBadNetwork: no window sees more than one call pass while requests take
// their time, answers are lost, and some come long after the place was granted.
func TestBadNetwork(t *testing.T) {
	storetest.EachNetworked(t, func(t *testing.T, s *storetest.Store) {
		const window = time.Second
		p := &passes{}
		calls := storetest.Rounds(t, 6)
		var group sync.WaitGroup
		for range 3 {
			link := s.Link(t)
			c := p.caller(t, s, link.URL)
			c.acquired = func() { // the release comes next
				switch rand.N(5) {
				case 0:
					link.HoldReplies(rand.N(2 * window))
				case 1:
					link.LoseReply()
				}
			}
			link.Delay(20 * time.Millisecond)
			group.Go(func() {
				for p.count() < calls {
					err := c.take(ratelimit.New(c.locks, 1, window))
					var limited *ratelimit.LimitError
					switch {
					case errors.As(err, &limited):
						time.Sleep(limited.RetryAfter)
					case err != nil && !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, holdfast.ErrLost):
						t.Error(err)
					case err != nil:
						time.Sleep(10 * time.Millisecond)
					}
				}
			})
		}
		group.Wait()
		p.judge(t, 1, window)
	})
}

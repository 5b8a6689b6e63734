//go:build unix

package pgstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockqueue/queuetest"
)

// The store keeps the rule of the queue.
func TestHistories(t *testing.T) {
	t.Parallel()
	together := func(t *testing.T, play func(*testing.T)) {
		t.Parallel()
		play(t)
	}
	queuetest.Run(t, together, 400*time.Millisecond, func(tb testing.TB) driver.Notifier {
		s := open(tb)
		s.Notify(func(string, string, int64) {}) // It listens to the mark before those that are tested.
		s.listening.Do(func() { s.goBackground(s.listen) })
		s.notices.Expect(queuetest.Mark, queuetest.Mark, time.Hour)
		return queuetest.Settled(s, func(token int64) {
			s.tell(context.Background(), []string{fmt.Sprintf("%s %d %s", s.channel, token, tagOf(queuetest.Mark, queuetest.Mark))})
		})
	})
}

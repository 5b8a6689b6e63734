package quorumstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// resting is how many goroutines wait for work.
func (c *crew) resting() int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.idle)
}

// Goroutines are used again, kept no longer than they are needed, and go with
// Close. (That none is left is seen by the bubble.)
func TestCrew(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, c cluster) {
		var nodes []driver.Store // that must be waited for
		for _, conn := range c.connect() {
			nodes = append(nodes, conn)
		}
		s := NewWith(nodes, nil)
		defer s.Close()
		for range 100 {
			req := request("mine")
			grant(t, s, req)
			giveBack(t, s, req)
			synctest.Wait()
		}
		if n := s.crew.resting(); n < 5 || n > 10 { // A release may find the acquire's at work.
			t.Errorf("%d goroutines for 5 nodes", n)
		}
		s.crew.thinOut()
		if _, _, err := s.Lookup(t.Context(), name); err != nil { // They are needed.
			t.Error(err)
		}
		synctest.Wait()
		s.crew.thinOut()
		if n := s.crew.resting(); n < 5 {
			t.Errorf("%d goroutines are kept while 5 are needed", n)
		}
		time.Sleep(3 * thinAfter)
		if n := s.crew.resting(); n != 0 {
			t.Errorf("%d goroutines are kept without need", n)
		}
		grant(t, s, request("mine"))
		if s.Close(); s.crew.resting() != 0 {
			t.Error("goroutines are kept after Close")
		}
	})
}

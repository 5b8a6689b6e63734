package holdfast

import (
	"container/heap"
	"time"
)

// unscheduled is the place of a hold that is not in the schedule.
const unscheduled = -1

// A schedule knows when each hold needs attention next: its renewal, or its
// deadline. One goroutine serves it. It is guarded by Client.mu.
type schedule struct {
	holds   byDue
	serving bool          // the goroutine runs
	next    time.Duration // when it will look, 0 if it sleeps until it is woken
	used    bool          // something was put in since it has looked
	wake    chan struct{} // has room for one
}

// planned puts a hold into the schedule, and sees to it that the goroutine looks
// at it in time. The caller holds c.mu.
func (c *Client) planned(h *hold) {
	s := &c.schedule
	s.put(h)
	s.used = true
	if !s.serving {
		s.serving = true
		c.active.Go(c.serve)
		return
	}
	if s.next == 0 || h.due < s.next {
		s.next = h.due
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (s *schedule) put(h *hold) {
	if h.place == unscheduled {
		heap.Push(&s.holds, h)
		return
	}
	heap.Fix(&s.holds, h.place)
}

func (s *schedule) remove(h *hold) {
	if h.place != unscheduled {
		heap.Remove(&s.holds, h.place)
	}
}

// byDue is a heap of holds, the one that is due first on top.
type byDue []*hold

func (b byDue) Len() int           { return len(b) }
func (b byDue) Less(i, j int) bool { return b[i].due < b[j].due }

func (b byDue) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].place, b[j].place = i, j
}

func (b *byDue) Push(x any) {
	h := x.(*hold)
	h.place = len(*b)
	*b = append(*b, h)
}

func (b *byDue) Pop() any {
	last := len(*b) - 1
	h := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	h.place = unscheduled
	return h
}

// chunks yields the parts of holds that are at most size long.
func chunks(holds []*hold, size int) func(func([]*hold) bool) {
	return func(yield func([]*hold) bool) {
		for len(holds) > 0 {
			n := min(size, len(holds))
			if !yield(holds[:n]) {
				return
			}
			holds = holds[n:]
		}
	}
}

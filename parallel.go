package holdfast

import "sync"

// parallel is how many requests of one call are under way at once.
const parallel = 64

// each calls f for 0 to n-1, which asks the store about another lock each time,
// and returns when all is done. The calls are made side by side, so that a store
// can carry them out in one round trip, unless they take no time.
func (c *Client) each(n int, f func(i int)) {
	if c.inline || n == 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var group sync.WaitGroup
	places := make(chan struct{}, parallel)
	for i := range n {
		places <- struct{}{}
		group.Go(func() {
			f(i)
			<-places
		})
	}
	group.Wait()
}

package drivertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// limitsCases are about holds that tolerate each other.
var limitsCases = []testCase{
	{"readers", shared, "Readers hold a name together, through each store, and never beside a writer.", func(r *caseRun) {
		other, holds := r.other(), []*entry(nil)
		for i := range 6 {
			h := []*store{r.first, other}[i%2].reader("name", long)
			if i > 0 {
				h.expectAbove(holds[i-1])
			}
			holds = append(holds, h)
		}
		for i, h := range holds {
			r.first.expectTaken("name")
			other.expectTaken("name")
			for _, later := range holds[i:] {
				later.expectRenewed(driver.Held, long)
			}
			h.end()
			h.expectGone()
		}
		writer := r.first.hold("name", long)
		other.refuse(limited(other.request("name", long), driver.Shared))
		writer.end()
		other.reader("name", long).expectAbove(writer)
	}},
	{"own-lease", shared, "Each hold has a lease of its own: none is prolonged or shortened by another, and one that has expired is over.", func(r *caseRun) {
		ends := r.first.reader("name", short)
		stays, last := r.other().reader("name", r.medium), r.other().reader("name", r.medium)
		stays.expectRenewed(driver.Held, long)
		ends.sleepPast()
		ends.expectGone()
		r.first.reader("name", long).end()
		r.first.reader("name", short).sleepPast()
		r.first.expectTaken("name")
		stays.expectRenewed(driver.Held, long)
		stays.end()
		r.first.takenFor(r.first.request("name", long), last.sent, r.medium)
		last.expectGone()
	}},
	{"writer-waits", shared | queue, "A writer that waits is not overtaken by readers, and keeps none out when it waits no more.", func(r *caseRun) {
		reader, other := r.first.reader("name", long), r.other()
		late := func() driver.Request { return limited(other.request("name", long), driver.Shared) }
		writer := r.first.place("name", long)
		other.refuse(late())
		reader.end()
		other.refuse(late())
		writer.expectTurn()
		writer.expectAbove(reader)
		other.refuse(late())
		writer.end()
		other.grant(late())
		writer = r.first.place("name", long)
		other.refuse(late())
		writer.end()
		other.grant(late()).end()
		writer = r.first.place("name", r.medium)
		other.takenFor(late(), writer.sent, r.medium)
	}},
	{"prefix", shared, "The holds are at any time the longest prefix of the live entries whose length is within every Limit in it, for any mixture of limits and keeps.", func(r *caseRun) {
		for seed := range uint64(6) {
			playHistory(r, fmt.Sprint("name/", seed), rand.New(rand.NewPCG(seed, 0)))
		}
	}},
	{"sum", shared, "Many owners, readers, writers and others through several stores, hold a name together and alone as they request, and each gets it.", func(r *caseRun) {
		stores, most := []*store{r.first, r.other(), r.other()}, int64(driver.Shared)
		if r.features.has(limits) {
			most = 4
		}
		// A writer adds so much that there is no room beside it.
		var sum atomic.Int64
		r.parallel(9, func(i int) error {
			limit, adds := int(most), int64(1)
			if i < 2 {
				limit, adds = 0, most
			}
			for range 15 {
				e, err := stores[i%len(stores)].waitForGrant("name", limit)
				if err != nil {
					return err
				}
				sum.Add(adds)
				time.Sleep(precision / 4)
				if n := sum.Load(); n > most {
					err = fmt.Errorf("the sum of the holds is %d with this one of %d, want %d at most", n, adds, most)
				}
				sum.Add(-adds)
				if err := errors.Join(err, e.endOrError()); err != nil {
					return err
				}
			}
			return nil
		})
		r.first.expectFree("name")
	}},
}

// A history is a queue as the rule has it, which is played on the store, too.
type history struct {
	*caseRun
	stores  []*store
	name    string
	entries []*entry
}

// playHistory makes, ends, keeps and breaks entries at random, and compares after each step.
func playHistory(r *caseRun, name string, random *rand.Rand) {
	r.Helper()
	h := &history{caseRun: r, name: name, stores: []*store{r.first, r.other()}}
	for range 30 {
		if n := len(h.entries); n > 0 && (n >= 7 || random.IntN(2) == 0) {
			h.end(random.IntN(n), random.IntN(4))
		} else {
			h.make(h.stores[random.IntN(2)], random)
		}
		if h.compare(); r.Failed() {
			return
		}
	}
}

// holds returns how many of the entries hold.
func (h *history) holds() int {
	least := driver.Shared
	for i, e := range h.entries {
		if least = min(least, max(e.Limit, 1)); i >= least {
			return i
		}
	}
	return len(h.entries)
}

func (h *history) make(s *store, random *rand.Rand) {
	req := limited(s.request(h.name, long), []int{1, driver.Shared, driver.Shared}[random.IntN(3)])
	if h.features.has(limits) {
		req.Limit = []int{1, 2, 3, driver.Shared}[random.IntN(4)]
	}
	if h.features.has(queue) && random.IntN(3) > 0 {
		req.Place = long
	}
	e, res, err := s.send(req)
	if err != nil {
		h.Fatal(err)
	}
	with := &history{entries: append(slices.Clone(h.entries), &entry{Request: req})}
	granted := with.holds() == len(with.entries)
	if res.Granted != granted || res.Waiting != (!granted && req.Place > 0) {
		h.Errorf("%v: Acquire with Limit %d and Place %v: %+v", h, req.Limit, req.Place, res)
	}
	if e != nil {
		h.entries = append(h.entries, e)
	}
}

// end ends the entry at an index: by Release, Release with Keep, or Break.
func (h *history) end(i, way int) {
	e, holds := h.entries[i], i < h.holds()
	switch {
	case e.kept || way == 0 && holds && h.features.has(breaking|fencing):
		if !h.features.has(breaking | fencing) {
			return // The keep stays.
		}
		if got := h.stores[0].breakToken(h.name, e.token); len(got) != 1 {
			h.Errorf("%v: Break of token %d ends %v", h, e.token, got)
		}
	case way == 1 && h.features.has(keep):
		if kept := e.store.releaseAs(h.name, e.Owner, long); kept != holds {
			h.Errorf("%v: Release of entry %d with Keep reports %v", h, i, kept)
		}
		if holds {
			e.kept = true
			return
		}
	default:
		e.end()
	}
	h.entries = slices.Delete(h.entries, i, i+1)
}

// compare checks that the store has the entries and the holds that the rule has.
func (h *history) compare() {
	holds := h.holds()
	for _, s := range h.stores {
		var mine []*entry
		var reqs []driver.RenewRequest
		var want []driver.State
		for i, e := range h.entries {
			if e.store == s && !e.kept {
				mine, reqs = append(mine, e), append(reqs, e.renewRequest(0, driver.MinTTL))
				want = append(want, driver.Waiting)
				if i < holds {
					want[len(want)-1] = driver.Held
				}
			}
		}
		for i, got := range s.renew(reqs...) {
			if err := mine[i].check(got, want[i]); err != nil {
				h.Errorf("%v: %v", h, err)
			}
		}
	}
	if h.features.has(lookup) {
		h.expectRecords(h.name, h.entries[:holds]...)
	}
}

func (h *history) String() string {
	text := "queue"
	for _, e := range h.entries {
		text += fmt.Sprint(" ", e.Limit)
		if e.kept {
			text += "kept"
		}
	}
	return text
}

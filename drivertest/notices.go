package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// noticesCases are about the notices of a Notifier, beside those that other cases wait for.
var noticesCases = []testCase{
	{"true", notifier | queue, "A place that becomes a hold is told so after the write, under its token. Nobody else is, and all are told little.", func(r *caseRun) {
		last, stores := r.first.hold("name", long), []*store{r.first, r.other()}
		third, before := r.other(), r.first.log.count()
		gone, lapsed := stores[1].place("name", long), r.first.place("name", short)
		var places []*entry
		for i := range 8 {
			places = append(places, stores[i%2].place("name", long))
		}
		gone.end()
		lapsed.sleepPast()
		last.expectState(driver.Held)
		tokens := map[string]int64{}
		for _, next := range places[:6] {
			ended := last.startEnd()
			next.expectTurn() // compares the token, and looks
			if err := <-ended; err != nil {
				r.Fatal(err)
			}
			last, tokens[next.Owner] = next, next.token
		}
		time.Sleep(short)
		told, notices := 0, []notice(nil)
		for _, s := range stores {
			sent, _ := s.log.since(before)
			notices, before = append(notices, sent...), 0
		}
		for _, n := range notices {
			if told++; n.owner == "" {
				told += len(places) - 1
			}
			if n.token != 0 && (n.name != "name" || n.token != tokens[n.owner]) {
				r.Errorf("the notice %+v is not true of its owner, whose hold has the token %d", n, tokens[n.owner])
			}
		}
		if told > 3*len(places) {
			r.Errorf("of %d owners %d got the name, and they were told %d times", len(places), len(tokens), told)
		}
		if notices, _ := third.log.since(0); r.features.has(processes) && len(notices) > 0 && notices[0].owner != "" {
			r.Errorf("a store without an entry is sent %+v", notices[0])
		}
	}},
	{"every-end", notifier | queue, "A place that becomes a hold is told so whatever ended what was before it: a release, a break, a place that was given up.", func(r *caseRun) {
		other := r.other()
		h := r.first.hold("released", long)
		p := other.place("released", long)
		h.end()
		p.expectTurn()
		if r.features.has(breaking) {
			r.first.hold("broken", long)
			p = other.place("broken", long)
			r.first.breakToken("broken", 0)
			p.expectTurn()
		}
		if r.features.has(shared) {
			r.first.reader("given up", long)
			writer := r.first.place("given up", long)
			p = other.wait(limited(other.placeRequest("given up", long), driver.Shared))
			writer.end()
			p.expectTurn()
		}
	}},
	{"found-expired", notifier | queue, "A place that becomes a hold because one before it has expired is told so by the request that finds it.", func(r *caseRun) {
		other := r.other()
		h := r.first.hold("name", r.medium)
		p := other.place("name", long)
		h.sleepPast()
		r.first.expectTaken("name")
		p.expectTurn()
	}},
	{"stop", notifier | queue, "A function that is registered is called for each notice until it is stopped, and not after, and others go on.", func(r *caseRun) {
		second, stop := listen(r.first.Store.(driver.Notifier))
		h := r.first.hold("name", long)
		a, b := r.first.place("name", long), r.first.place("name", long)
		twin := *a
		twin.store, twin.seen = &store{Store: r.first.Store, run: r, log: second}, 0
		h.end()
		twin.expectNotice("by the second function")
		a.expectNotice("by the first function")
		time.Sleep(short)
		stop()
		stopped := second.count()
		a.end()
		b.expectNotice("after the second function was stopped")
		time.Sleep(short)
		if late := second.count() - stopped; late != 0 {
			r.Errorf("a function that was stopped is called %d times", late)
		}
		stop() // A second time, as a deferred call would.
	}},
}

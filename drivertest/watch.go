package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var watchCases = []testCase{
	{
		name:  "unclaimed",
		claim: "A store that does not claim Push is no Watcher, or its Watch returns ErrUnsupported.",
		lacks: push,
		run: func(r *run) {
			watcher, ok := r.first.Store.(driver.Watcher)
			if !ok {
				return
			}
			if _, err := watcher.Watch(r.Context(), "name"); !errors.Is(err, driver.ErrUnsupported) {
				r.Errorf("Watch: %v, want ErrUnsupported", err)
			}
		},
	},
	{
		name:  "release",
		claim: "A watch is signalled after a Release of its name.",
		needs: push,
		run: func(r *run) {
			h := r.first.grant("name", long)
			signals := r.first.watch("name")
			h.end()
			r.signalled(signals)
		},
	},
	{
		name:  "break",
		claim: "A watch is signalled after a Break of its name.",
		needs: push | breaking,
		run: func(r *run) {
			r.first.grant("name", long)
			signals := r.first.watch("name")
			r.first.breakHold("name")
			r.signalled(signals)
		},
	},
	{
		name:  "other-process",
		claim: "A watch is signalled by releases and breaks through other stores.",
		needs: push | processes,
		run: func(r *run) {
			other := r.other()
			signals := r.first.watch("name")
			other.grant("name", long).end()
			r.signalled(signals)
			if r.have.has(breaking) {
				other.grant("name", long)
				drain(signals)
				other.breakHold("name")
				r.signalled(signals)
			}
		},
	},
	{
		name:  "before-the-name",
		claim: "A watch of a name that nobody has ever taken is signalled when it is taken and released.",
		needs: push,
		run: func(r *run) {
			signals := r.first.watch("name")
			r.first.grant("name", long).end()
			r.signalled(signals)
		},
	},
	{
		name:  "every-watcher",
		claim: "Every watch of a name is signalled, through whichever store.",
		needs: push,
		run: func(r *run) {
			other := r.other()
			h := r.first.grant("name", long)
			watches := []<-chan struct{}{r.first.watch("name"), r.first.watch("name"), other.watch("name")}
			h.end()
			for _, signals := range watches {
				r.signalled(signals)
			}
		},
	},
	{
		name:  "no-lost-wake-up",
		claim: "A Release that happens after Watch has returned is signalled, in every one of many rounds.",
		needs: push,
		run: func(r *run) {
			other := r.other()
			for i := range 50 {
				name := fmt.Sprint("name/", i%3)
				h := other.grant(name, long)
				ctx, cancel := context.WithCancel(r.Context())
				signals := r.first.watchUntil(ctx, name)
				r.first.busy(name)
				h.end()
				r.signalled(signals)
				cancel()
			}
		},
	},
	{
		name:  "racing-release",
		claim: "A waiter that watches, tries, and waits for the signal if it is refused gets the name, however the release falls in between.",
		needs: push,
		run: func(r *run) {
			other := r.other()
			for range 50 {
				h := other.grant("name", long)
				released := make(chan error, 1)
				go func() { released <- h.c.mustRelease(driver.AcquireRequest{Name: "name", Owner: h.owner}) }()
				r.waitFor("name").end()
				if err := <-released; err != nil {
					r.Fatal(err)
				}
			}
		},
	},
	{
		name:  "stays",
		claim: "A watch is signalled again and again, not just once.",
		needs: push,
		run: func(r *run) {
			signals := r.first.watch("name")
			for range 5 {
				h := r.first.grant("name", long)
				drain(signals)
				h.end()
				r.signalled(signals)
			}
		},
	},
	{
		name:  "unread",
		claim: "A watch that nobody reads holds nothing up, and has a signal for whoever reads it later.",
		needs: push,
		run: func(r *run) {
			signals := r.first.watch("name")
			for range 20 {
				r.first.grant("name", long).end()
			}
			r.signalled(signals)
		},
	},
	{
		name:  "others-end",
		claim: "The end of one watch does not end another of the same name, and a name can be watched anew.",
		needs: push,
		run: func(r *run) {
			ctx, cancel := context.WithCancel(r.Context())
			stays := r.first.watch("name")
			r.first.watchUntil(ctx, "name")
			cancel()
			time.Sleep(precision) // The store may see the end a little later.
			r.first.grant("name", long).end()
			r.signalled(stays)
			again := r.first.watch("name")
			r.first.grant("name", long).end()
			r.signalled(again)
		},
	},
	{
		name:  "not-closed",
		claim: "The channel of a watch is not closed when the watch ends.",
		needs: push,
		run: func(r *run) {
			ctx, cancel := context.WithCancel(r.Context())
			signals := r.first.watchUntil(ctx, "name")
			cancel()
			select {
			case _, open := <-signals:
				if !open {
					r.Error("the channel of an ended watch is closed")
				}
			case <-time.After(short):
			}
		},
	},
	{
		name:  "only-its-name",
		claim: "Releases of other names do not keep waking a watch.",
		needs: push,
		run: func(r *run) {
			signals := r.first.watch("name")
			woken := 0
			for i := range 100 {
				r.first.grant(fmt.Sprint("name", i%7), long).end()
				woken += drain(signals)
			}
			time.Sleep(short)
			if woken += drain(signals); woken > 10 {
				r.Errorf("a watch was woken %d times by 100 releases of other names", woken)
			}
		},
	},
	{
		name:  "many",
		claim: "Many names can be watched at once, and each watch is signalled for its own.",
		needs: push,
		run: func(r *run) {
			watches := map[string]<-chan struct{}{}
			for i := range 100 {
				name := fmt.Sprint("name/", i)
				watches[name] = r.first.watch(name)
			}
			for name := range watches {
				r.first.grant(name, long).end()
			}
			for _, signals := range watches {
				r.signalled(signals)
			}
		},
	},
}

// signalled waits for a signal.
func (r *run) signalled(signals <-chan struct{}) {
	r.Helper()
	r.signalledWithin(0, signals)
}

// signalledWithin waits for a signal that may take some time.
func (r *run) signalledWithin(limit time.Duration, signals <-chan struct{}) {
	r.Helper()
	select {
	case _, open := <-signals:
		if !open {
			r.Fatal("the channel of a watch is closed")
		}
	case <-time.After(limit + r.slack()):
		r.Fatal("no signal came")
	}
}

// drain takes the signal that is waiting, and returns how many there were.
func drain(signals <-chan struct{}) int {
	select {
	case <-signals:
		return 1
	default:
		return 0
	}
}

// waitFor takes a name as package holdfast does, but relies on signals alone.
func (r *run) waitFor(name string) *hold {
	r.Helper()
	signals := r.first.watch(name)
	req := r.first.request(name, long)
	for {
		res := r.first.acquire(req)
		if res.Granted {
			return &hold{c: r.first, name: name, owner: req.Owner, token: res.Token}
		}
		r.signalled(signals)
	}
}

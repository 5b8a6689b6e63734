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
		name:    "unclaimed",
		claim:   "A store that does not claim Push is no Watcher, or its Watch returns ErrUnsupported.",
		without: push,
		run: func(r *caseRun) {
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
		name:     "release",
		claim:    "A watch is signalled after a Release of its name.",
		requires: push,
		run: func(r *caseRun) {
			h := r.first.acquireFree("name", long)
			signals := r.first.startWatch("name")
			h.releaseHeld()
			r.expectSignal(signals)
		},
	},
	{
		name:     "break",
		claim:    "A watch is signalled after a Break of its name.",
		requires: push | breaking,
		run: func(r *caseRun) {
			r.first.acquireFree("name", long)
			signals := r.first.startWatch("name")
			r.first.breakHold("name")
			r.expectSignal(signals)
		},
	},
	{
		name:     "other-process",
		claim:    "A watch is signalled by releases and breaks through other stores.",
		requires: push | processes,
		run: func(r *caseRun) {
			other := r.otherStore()
			signals := r.first.startWatch("name")
			other.acquireFree("name", long).releaseHeld()
			r.expectSignal(signals)
			if r.features.contains(breaking) {
				other.acquireFree("name", long)
				drainSignals(signals)
				other.breakHold("name")
				r.expectSignal(signals)
			}
		},
	},
	{
		name:     "before-the-name",
		claim:    "A watch of a name that was never taken is signalled when the name is taken and released.",
		requires: push,
		run: func(r *caseRun) {
			signals := r.first.startWatch("name")
			r.first.acquireFree("name", long).releaseHeld()
			r.expectSignal(signals)
		},
	},
	{
		name:     "every-watcher",
		claim:    "Every watch of a name is signalled, through each store.",
		requires: push,
		run: func(r *caseRun) {
			other := r.otherStore()
			h := r.first.acquireFree("name", long)
			watches := []<-chan struct{}{r.first.startWatch("name"), r.first.startWatch("name"), other.startWatch("name")}
			h.releaseHeld()
			for _, signals := range watches {
				r.expectSignal(signals)
			}
		},
	},
	{
		name:     "no-lost-wake-up",
		claim:    "A Release that happens after Watch has returned is signalled, in every one of many rounds.",
		requires: push,
		run: func(r *caseRun) {
			other := r.otherStore()
			for i := range 50 {
				name := fmt.Sprint("name/", i%3)
				h := other.acquireFree(name, long)
				ctx, cancel := context.WithCancel(r.Context())
				signals := r.first.startWatchUntil(ctx, name)
				r.first.expectHeld(name)
				h.releaseHeld()
				r.expectSignal(signals)
				cancel()
			}
		},
	},
	{
		name:     "racing-release",
		claim:    "A waiter that watches, tries, and waits for a signal if it is refused acquires the name, whenever the release happens in between.",
		requires: push,
		run: func(r *caseRun) {
			other := r.otherStore()
			for range 50 {
				h := other.acquireFree("name", long)
				released := make(chan error, 1)
				go func() { released <- h.client.releaseOrError(driver.AcquireRequest{Name: "name", Owner: h.owner}) }()
				r.waitBySignals("name").releaseHeld()
				if err := <-released; err != nil {
					r.Fatal(err)
				}
			}
		},
	},
	{
		name:     "stays",
		claim:    "A watch is signalled repeatedly, not only once.",
		requires: push,
		run: func(r *caseRun) {
			signals := r.first.startWatch("name")
			for range 5 {
				h := r.first.acquireFree("name", long)
				drainSignals(signals)
				h.releaseHeld()
				r.expectSignal(signals)
			}
		},
	},
	{
		name:     "unread",
		claim:    "A watch with a channel that is not read blocks nothing, and has a signal for a later read.",
		requires: push,
		run: func(r *caseRun) {
			signals := r.first.startWatch("name")
			for range 20 {
				r.first.acquireFree("name", long).releaseHeld()
			}
			r.expectSignal(signals)
		},
	},
	{
		name:     "others-end",
		claim:    "The end of one watch does not end another of the same name, and a name can be watched again.",
		requires: push,
		run: func(r *caseRun) {
			ctx, cancel := context.WithCancel(r.Context())
			stays := r.first.startWatch("name")
			r.first.startWatchUntil(ctx, "name")
			cancel()
			time.Sleep(precision) // The store may see the end a little later.
			r.first.acquireFree("name", long).releaseHeld()
			r.expectSignal(stays)
			again := r.first.startWatch("name")
			r.first.acquireFree("name", long).releaseHeld()
			r.expectSignal(again)
		},
	},
	{
		name:     "not-closed",
		claim:    "The channel of a watch is not closed when the watch ends.",
		requires: push,
		run: func(r *caseRun) {
			ctx, cancel := context.WithCancel(r.Context())
			signals := r.first.startWatchUntil(ctx, "name")
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
		name:     "only-its-name",
		claim:    "Releases of other names do not keep waking a watch.",
		requires: push,
		run: func(r *caseRun) {
			signals := r.first.startWatch("name")
			woken := 0
			for i := range 100 {
				r.first.acquireFree(fmt.Sprint("name", i%7), long).releaseHeld()
				woken += drainSignals(signals)
			}
			time.Sleep(short)
			if woken += drainSignals(signals); woken > 10 {
				r.Errorf("a watch was woken %d times by 100 releases of other names", woken)
			}
		},
	},
	{
		name:     "many",
		claim:    "Many names can be watched at once, and each watch is signalled for its own name.",
		requires: push,
		run: func(r *caseRun) {
			watches := map[string]<-chan struct{}{}
			for i := range 100 {
				name := fmt.Sprint("name/", i)
				watches[name] = r.first.startWatch(name)
			}
			for name := range watches {
				r.first.acquireFree(name, long).releaseHeld()
			}
			for _, signals := range watches {
				r.expectSignal(signals)
			}
		},
	},
}

// expectSignal waits for a signal.
func (r *caseRun) expectSignal(signals <-chan struct{}) {
	r.Helper()
	r.expectSignalWithin(0, signals)
}

// expectSignalWithin waits for a signal that may take up to limit, and the tolerance.
func (r *caseRun) expectSignalWithin(limit time.Duration, signals <-chan struct{}) {
	r.Helper()
	select {
	case _, open := <-signals:
		if !open {
			r.Fatal("the channel of a watch is closed")
		}
	case <-time.After(limit + r.tolerance()):
		r.Fatal("no signal came")
	}
}

// drainSignals receives the pending signal, if there is one, and returns how many
// signals there were.
func drainSignals(signals <-chan struct{}) int {
	select {
	case <-signals:
		return 1
	default:
		return 0
	}
}

// waitBySignals acquires a name as package holdfast does, but relies on signals
// alone.
func (r *caseRun) waitBySignals(name string) *hold {
	r.Helper()
	signals := r.first.startWatch(name)
	req := r.first.newRequest(name, long)
	for {
		res := r.first.acquire(req)
		if res.Granted {
			return &hold{client: r.first, name: name, owner: req.Owner, token: res.Token}
		}
		r.expectSignal(signals)
	}
}

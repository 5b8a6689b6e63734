package drivertest

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Harness tells the suite how to make the stores that it tests.
type Harness struct {
	// New makes a fresh, empty place for locks: a folder, a key prefix, a
	// table. It is called at least once per case, and must keep the places
	// apart, since cases run in parallel. It is required. What it sets up it
	// takes down by tb.Cleanup; it reports failure by tb.Fatal.
	New func(tb testing.TB) Backing

	// Virtual runs every case in a bubble of testing/synctest: for stores that
	// do no input or output and keep time by package time alone.
	Virtual bool

	// Serial runs one case after the other. The default is in parallel.
	Serial bool
}

// A Backing is a place where locks are kept. Open is required. The other
// functions are ways to do it harm: the cases for which one is needed and nil
// are reported as not tested.
type Backing struct {
	// Open returns a new store over the locks of this place, with nothing in
	// common with the stores opened before but the place, as if in another
	// process. The suite closes it. For a store of driver.ScopeProcess, Open is
	// called once, and again only after Restart or when that one is closed.
	Open func(tb testing.TB) driver.Store

	// OpenSkewed is Open for a store in a process whose clock is ahead of all
	// others by skew, or behind if it is negative.
	OpenSkewed func(tb testing.TB, skew time.Duration) driver.Store

	// Restart kills and starts again what keeps the locks: the server; for a
	// store without one, the host, or else the process. Nothing is saved that
	// would not be saved at a power cut. The suite has no calls in flight, and
	// uses only stores opened after it.
	Restart func(tb testing.TB)

	// Crash makes the process that has opened s die, as by SIGKILL: s is not
	// closed and releases nothing, and whatever the operating system does about
	// a dead process is done. The suite does not use s afterwards, and closes
	// it in the end.
	Crash func(tb testing.TB, s driver.Store)

	// Fault makes something go wrong with the next request that s sends, and
	// only with that one. There is none in flight.
	Fault func(tb testing.TB, s driver.Store, f Fault)

	// Sever cuts the connections of s, those of its watches too, at once and
	// without a word. New ones succeed.
	Sever func(tb testing.TB, s driver.Store)

	// Silence makes the server, or the network to it, one that answers s no
	// more, without cutting a connection. It ends with the case, by tb.Cleanup.
	Silence func(tb testing.TB, s driver.Store)
}

// A Fault is what goes wrong with a request.
type Fault uint8

const (
	// RequestLost: the request is lost on the way and never takes effect.
	RequestLost Fault = iota + 1

	// ReplyLost: the request takes effect, and the answer is lost.
	ReplyLost
)

func (f Fault) String() string {
	switch f {
	case RequestLost:
		return "request lost"
	case ReplyLost:
		return "reply lost"
	}
	return "unknown"
}

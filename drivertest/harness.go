package drivertest

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Harness makes the stores that the suite tests.
type Harness struct {
	// New makes a fresh, empty place for locks: a folder, a key prefix, a table. It is called at
	// least once per case. The places must be separate, since cases run in parallel. New is
	// required. It removes what it sets up by tb.Cleanup, and reports failure by tb.Fatal.
	New func(tb testing.TB) Backing

	// Virtual runs every case in a bubble of testing/synctest, one after the other. It is for
	// stores that do no input or output and have no clock but package time: their cases wait for
	// nothing. Other cases run in parallel.
	Virtual bool

	// Slow is for a store each of whose calls may take some hundred milliseconds on a machine that
	// is busy.
	Slow bool

	// Walk runs the first case of each group alone: for a variant of a store that is tested whole
	// elsewhere.
	Walk bool
}

// A Backing is a place where locks are kept. Open is required. The other functions inject faults.
// Cases that require a function that is nil are reported as not tested.
type Backing struct {
	// Open returns a new store over the locks of this place. The new store shares only the place
	// with the stores opened before, as if it were in another process. The suite closes it. For a
	// store with Guarantees.InProcess, Open is called once, and again only after Restart or when
	// that store is closed.
	Open func(tb testing.TB) driver.Store

	// OpenSkewed is Open for a store in a process with a clock that is ahead of all other clocks by
	// skew, or behind if skew is negative.
	OpenSkewed func(tb testing.TB, skew time.Duration) driver.Store

	// Restart kills and starts again what keeps the locks: the server, or for a store without a
	// server the host, or else the process. Only data that a power cut would spare survives. The
	// suite has no calls in flight, and uses only stores opened after it.
	Restart func(tb testing.TB)

	// Crash makes the process that has opened s die, as by SIGKILL: s is not closed and releases
	// nothing, and everything that the operating system does for a dead process is done. The suite
	// does not use s afterwards, and closes it in the end.
	Crash func(tb testing.TB, s driver.Store)

	// Fault injects f into the next request that s sends, and only into that request. No request is
	// in flight.
	Fault func(tb testing.TB, s driver.Store, f Fault)

	// Sever cuts the connections of s, including those for its notices, at once and without notice.
	// New connections succeed.
	Sever func(tb testing.TB, s driver.Store)

	// Busy makes the server of s reply to every request, except renewals, that it cannot serve for
	// the duration d (see [driver.RetryError]): it is loading its data, for instance, or grants
	// nothing for a while. It keeps its holds.
	Busy func(tb testing.TB, s driver.Store, d time.Duration)

	// Silence stops the replies of the server, or of the network to it, to s. It does not cut a
	// connection. It ends with the case, by tb.Cleanup.
	Silence func(tb testing.TB, s driver.Store)

	// Occupy puts something under a name that no store of this kind has written, as another program
	// with write access can: a lock of another kind of client, a record that is malformed, an
	// expiry beyond all bounds. The ways are numbered from 0. Occupy reports false if there is no
	// way of this number.
	Occupy func(tb testing.TB, name string, way int) bool
}

// A Fault is a fault of one request.
type Fault uint8

const (
	// RequestLost means that the request does not reach the server and never takes effect.
	RequestLost Fault = iota + 1

	// ReplyLost means that the request takes effect, and that its reply is lost.
	ReplyLost
)

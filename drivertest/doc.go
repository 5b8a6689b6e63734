// Package drivertest is the definition of a correct store: the contract of
// package driver as a test suite, for the stores of this module and for
// anybody's. A store passes it from an ordinary test:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Harness{
//			New: func(tb testing.TB) drivertest.Backing {
//				dir := tb.TempDir()
//				return drivertest.Backing{
//					Open: func(tb testing.TB) driver.Store { return open(tb, dir) },
//				}
//			},
//		})
//	}
//
// Every case is a subtest with a claim of one sentence, which is printed when
// the case fails. Cases that need something which the store does not claim in
// its Guarantees, or which the harness does not offer, are not run: they are
// listed in the log under "not tested here". None is skipped, and none passes
// because nothing was looked at. What a store does not claim must be refused,
// and that is tested instead.
//
// Two guarantees cannot be tested through a store alone, and are not: Fair,
// since a store makes single attempts and knows no queue, and Failover.
//
// # Time
//
// The cases let real time pass, seconds in all, since a store has a clock of
// its own. They run in parallel so that the waits overlap; go test -parallel 16
// makes more of them overlap than there are cores. Safety is judged exactly, by
// times taken before a request was sent and after its answer came; the bounds
// on what must happen in the end are generous, so that a busy machine fails no
// correct store. A store without input or output can set [Harness.Virtual]:
// then every case runs in a bubble of testing/synctest, takes no time, and is
// judged to the millisecond.
//
// # Goroutines
//
// A case fails if a goroutine that was started during it is still there when
// its stores are closed and the cleanups of the harness have run. What the
// harness starts must therefore end in a Cleanup, or be started before Run.
package drivertest

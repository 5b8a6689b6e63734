// Package drivertest is the definition of a correct store: the contract of
// package driver as a test suite, for the stores of this module and for any
// other. An ordinary test runs it:
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
// the case fails. Cases that require something that the store does not claim in
// its Guarantees, or that the harness does not offer, are not run: they are
// listed in the log under "not tested here". No case is skipped, and no case passes
// without a check. What a store does not claim it must refuse, and other cases
// test that.
//
// A store that queues requests for a name that is held is a driver.Notifier, and is tested as one,
// whether it claims Fair or not.
//
// One guarantee cannot be tested through a store alone, and is not tested: Failover.
//
// # Time
//
// The cases let real time pass, seconds in all, since a store has a clock of
// its own. They run in parallel so that the waits overlap; go test -parallel 16
// makes more of them overlap than there are cores. Safety is judged exactly, by
// times taken before a request was sent and after its reply came. The bounds
// on what must happen in the end are generous, so that a correct store passes on a
// busy machine. The harness of a store without input or output can set
// [Harness.Virtual]: then every case runs in a bubble of testing/synctest, takes no
// time, and is judged to the millisecond.
//
// A store with a [driver.Guarantees.Grain] may end holds, places and keeps later by as much, and is
// waited for that much longer. It may end none sooner than any other store.
//
// # Goroutines
//
// A case fails if a goroutine that was started during the case still exists when
// its stores are closed and the cleanups of the harness have run. The goroutines that
// the harness starts must therefore end in a Cleanup, or be started before Run.
package drivertest

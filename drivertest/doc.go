// Package drivertest is the definition of a correct store: the contract of package driver as a test
// suite, for the stores of this module and for any other. An ordinary test runs it:
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
// Every case is a subtest with a claim of one sentence, which is printed when the case fails. A
// case that requires something that the store neither claims in its Guarantees nor does, or that
// the harness does not offer, is not run. The log names it under "not tested here". No case is
// skipped, and none passes without a check. What a store does not do it must refuse. Failover is
// not tested. A case fails if a goroutine that was started during it outlives its stores.
//
// # Time
//
// The cases let real time pass, since a store has a clock of its own. They run in parallel so that
// the waits overlap. go test -parallel 16 makes more of them overlap than there are cores. Safety
// is judged exactly, by times taken before a request was sent and after its reply came. What must
// happen in the end has generous bounds, so that a correct store passes on a busy machine. With
// [Harness.Virtual] a case takes no time and is judged to the millisecond. Guarantees.Grain is
// allowed for in what ends late, and in nothing that ends early.
package drivertest

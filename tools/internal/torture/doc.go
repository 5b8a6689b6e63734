// Package torture tests whether a lock excludes. Real processes acquire, hold, extend and release
// the locks of a store, and run work under Do. Meanwhile they are paused and killed, their network
// fails, their client is closed, and the store's servers are paused, cut off, restarted and
// emptied. Clients of another kind take the same locks. Every step is logged on one clock, and the
// log is checked afterwards.
//
// A [Run] has one coordinator, which starts the worker processes, injects the faults, and checks
// the log. A worker process calls [Work]. All times are readings of the monotonic clock of the
// host, which all its processes share: whether two holders overlapped is a comparison of numbers.
// Each reading is taken on the safe side of the moment it stands for, so everything that the
// checker reports as a violation is one. The checker accepts an observation if something could
// explain it: the release of all locks of a client (except for a lock held by Do, which must wait
// for its work), and a fault that the store does not promise to survive.
package torture

// Package torture finds out whether a lock is one: real processes take, hold,
// extend and release the locks of a store while they are paused and killed, their
// network fails, and the store's servers are paused, cut off and restarted; every
// step is logged on one clock, and the log is judged afterwards.
//
// A [Run] has one coordinator, which starts the workers' processes, does the
// harm, and judges; a worker process calls [Work]. All times are readings of the
// monotonic clock of the host, which its processes share: so whether two holders
// overlapped is a comparison of numbers and not a matter of opinion. Each
// reading is taken on the safe side of what it stands for, so that what the
// judge calls a violation is one.
package torture

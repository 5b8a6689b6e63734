//go:build unix

package torture

import "slices"

// A Fault is a kind of fault that a run injects.
type Fault string

const (
	// Pause stops a worker's process for up to three TTLs.
	Pause Fault = "pause"

	// Kill kills a worker's process. Another process takes its place.
	Kill Fault = "kill"

	// Partition blocks all traffic between a worker's process and the store, in one direction or
	// both, for up to three TTLs.
	Partition Fault = "partition"

	// LoseReply closes a connection of a worker's process instead of passing the next reply on.
	LoseReply Fault = "lose-reply"

	// Slow delays all traffic between a worker's process and the store.
	Slow Fault = "slow"

	// ServerPause stops a server of the store for up to a TTL.
	ServerPause Fault = "server-pause"

	// ServerPartition blocks all traffic between a server of the store and all processes, in one
	// direction or both, for up to three TTLs.
	ServerPartition Fault = "server-partition"

	// ServerRestart kills a server of the store and starts it with the data that it has on disk.
	ServerRestart Fault = "server-restart"

	// ServerForget kills a server of the store and starts it without its data.
	ServerForget Fault = "server-forget"

	// Outage stops all servers of the store for two to four TTLs: longer than a lock can be held
	// meanwhile.
	Outage Fault = "outage"
)

// Faults are all faults.
var Faults = []Fault{
	Pause, Kill, Partition, LoseReply, Slow,
	ServerPause, ServerPartition, ServerRestart, ServerForget, Outage,
}

func (f Fault) isNetworkFault() bool {
	return slices.Contains([]Fault{Partition, LoseReply, Slow, ServerPartition}, f)
}

func (f Fault) isServerFault() bool {
	return slices.Index(Faults, f) >= slices.Index(Faults, ServerPause)
}

// A Server is a server of the store, in which a run may inject faults.
type Server struct {
	Pause   func() error // stops it
	Resume  func() error // continues it
	Restart func() error // see ServerRestart
	Forget  func() error // see ServerForget; nil if the store is not to be tried with that
}

//go:build unix

package torture

import (
	"fmt"
	"slices"
	"strings"
)

// A Fault is a kind of fault that a run injects.
type Fault string

const (
	// Pause stops a worker's process for up to three TTLs.
	Pause Fault = "pause"

	// Kill kills a worker's process. Another process takes its place.
	Kill Fault = "kill"

	// Partition blocks all traffic between a worker's process and the store, in one
	// direction or both, for up to three TTLs.
	Partition Fault = "partition"

	// LoseReply closes a connection of a worker's process instead of passing the next reply
	// on.
	LoseReply Fault = "lose-reply"

	// Reset closes all connections of a worker's process.
	Reset Fault = "reset"

	// Slow delays all traffic between a worker's process and the store.
	Slow Fault = "slow"

	// ServerPause stops a server of the store for up to a TTL.
	ServerPause Fault = "server-pause"

	// ServerPartition blocks all traffic between a server of the store and all processes,
	// in one direction or both, for up to three TTLs.
	ServerPartition Fault = "server-partition"

	// ServerRestart kills a server of the store and starts it with the data that it has on
	// disk.
	ServerRestart Fault = "server-restart"

	// Outage stops all servers of the store for two to four TTLs: longer than a lock can be
	// held meanwhile.
	Outage Fault = "outage"

	// ServerForget kills a server of the store and starts it without its data.
	ServerForget Fault = "server-forget"
)

// Faults are all faults.
var Faults = []Fault{
	Pause, Kill, Partition, LoseReply, Reset, Slow,
	ServerPause, ServerPartition, ServerRestart, ServerForget, Outage,
}

func (f Fault) isNetworkFault() bool {
	return f == Partition || f == LoseReply || f == Reset || f == Slow || f == ServerPartition
}

func (f Fault) isServerFault() bool {
	return f == ServerPause || f == ServerPartition || f == ServerRestart || f == ServerForget || f == Outage
}

// ParseFaults parses a list of faults separated by commas.
func ParseFaults(list string) ([]Fault, error) {
	var faults []Fault
	for text := range strings.SplitSeq(list, ",") {
		f := Fault(strings.TrimSpace(text))
		if f == "" || f == "none" {
			continue
		}
		if !slices.Contains(Faults, f) {
			return nil, fmt.Errorf("there is no fault %q", f)
		}
		if !slices.Contains(faults, f) {
			faults = append(faults, f)
		}
	}
	return faults, nil
}

// A Server is a server of the store, in which a run may inject faults.
type Server interface {
	// Can reports whether the server supports a fault.
	Can(Fault) bool

	// Pause stops the server, and Resume continues it.
	Pause() error
	Resume() error

	// Restart kills the server and starts it again, with its data or empty.
	Restart(empty bool) error
}

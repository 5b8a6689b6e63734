//go:build unix

package torture

import (
	"fmt"
	"slices"
	"strings"
)

// A Fault is a kind of harm.
type Fault string

const (
	// Pause stops a worker's process for up to three TTLs.
	Pause Fault = "pause"

	// Kill kills a worker's process; another takes its place.
	Kill Fault = "kill"

	// Partition lets nothing through between a worker's process and the store,
	// either way or both, for up to three TTLs.
	Partition Fault = "partition"

	// LoseReply cuts a connection of a worker's process instead of passing the
	// next answer on.
	LoseReply Fault = "lose-reply"

	// Reset cuts all connections of a worker's process.
	Reset Fault = "reset"

	// Slow delays all that passes between a worker's process and the store.
	Slow Fault = "slow"

	// ServerPause stops a server of the store for up to a TTL.
	ServerPause Fault = "server-pause"

	// ServerPartition lets nothing through between a server of the store and all
	// processes, either way or both, for up to three TTLs.
	ServerPartition Fault = "server-partition"

	// ServerRestart kills a server of the store and starts it with the data that
	// it has on disk.
	ServerRestart Fault = "server-restart"

	// ServerForget kills a server of the store and starts it without its data.
	ServerForget Fault = "server-forget"
)

// Faults are all there are.
var Faults = []Fault{
	Pause, Kill, Partition, LoseReply, Reset, Slow,
	ServerPause, ServerPartition, ServerRestart, ServerForget,
}

func (f Fault) onNetwork() bool {
	return f == Partition || f == LoseReply || f == Reset || f == Slow || f == ServerPartition
}

func (f Fault) onServer() bool {
	return f == ServerPause || f == ServerPartition || f == ServerRestart || f == ServerForget
}

// ParseFaults reads a list with commas between.
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

// A Server is a server of the store, which a run may harm.
type Server interface {
	// Can reports whether a fault can be done to it.
	Can(Fault) bool

	// Pause stops it, and Resume lets it go on.
	Pause() error
	Resume() error

	// Restart kills it and starts it again, with its data or without.
	Restart(empty bool) error
}

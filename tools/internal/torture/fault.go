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

	// PauseFirst stops the process of the first waiter in the longest queue, for half the time of
	// its place or for twice that time.
	PauseFirst Fault = "pause-first"

	// KillFirst kills the processes of the first three waiters in the longest queue at once.
	KillFirst Fault = "kill-first"

	// Partition blocks all traffic between a worker's process and the store, in one
	// direction or both, for up to three TTLs.
	Partition Fault = "partition"

	// LoseReply closes a connection of a worker's process instead of passing the next reply
	// on.
	LoseReply Fault = "lose-reply"

	// Reset closes all connections of a worker's process.
	Reset Fault = "reset"

	// CutNotices closes the connections by which a worker's process gets notices, or blocks them
	// in one direction or both, for up to three TTLs.
	CutNotices Fault = "cut-notices"

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

	// MajorityPause stops a majority of the servers of the store for up to a TTL. The others are cut
	// off then.
	MajorityPause Fault = "majority-pause"

	// MajorityRestart kills a majority of the servers of the store and starts them with the data
	// that they have on disk.
	MajorityRestart Fault = "majority-restart"

	// Compaction has a server of the store forget all revisions but the last.
	Compaction Fault = "compaction"

	// NoSpace has the servers of the store refuse to write, as if their space was used up, for a
	// TTL.
	NoSpace Fault = "no-space"

	// Outage stops all servers of the store for two to four TTLs: longer than a lock can be
	// held meanwhile.
	Outage Fault = "outage"

	// ServerForget kills a server of the store and starts it without its data.
	ServerForget Fault = "server-forget"

	// ServerFlush removes all data from a server of the store.
	ServerFlush Fault = "server-flush"

	// ServerFailover kills a server of the store and puts its replica in its place, which lacks
	// the latest changes.
	ServerFailover Fault = "server-failover"
)

// Faults are all faults.
var Faults = []Fault{
	Pause, Kill, PauseFirst, KillFirst, Partition, LoseReply, Reset, CutNotices, Slow,
	ServerPause, ServerPartition, ServerRestart, ServerForget, ServerFlush, ServerFailover,
	MajorityPause, MajorityRestart, Compaction, NoSpace, Outage,
}

func (f Fault) isNetworkFault() bool {
	return slices.Contains([]Fault{Partition, LoseReply, Reset, CutNotices, Slow, ServerPartition}, f)
}

func (f Fault) isServerFault() bool {
	return slices.Index(Faults, f) >= slices.Index(Faults, ServerPause)
}

// kills reports whether a fault is the end of a process.
func (f Fault) kills() bool { return f == Kill || f == KillFirst }

// forgets reports whether a server loses data, or some of it.
func (f Fault) forgets() bool { return f == ServerForget || f == ServerFlush || f == ServerFailover }

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

	// Harm does any other fault of a server.
	Harm(Fault) error
}

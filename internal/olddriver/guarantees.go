package olddriver

import "time"

// Guarantees are what a store promises. Package drivertest checks each of them
// both ways: what is claimed must work, and what is not claimed must be refused
// with ErrUnsupported, except for Metadata, which package holdfast refuses.
type Guarantees struct {
	// Store is the kind of store in a word, for messages and logs: "memory".
	Store string

	// Scope is how far exclusion reaches.
	Scope Scope

	// Fencing means that every grant has a token, as the package comment describes.
	Fencing bool

	// HolderCrash is when the locks of a process that has died become free.
	HolderCrash Recovery

	// Grain is how much longer than its TTL, Queue or Keep a hold, place or keep may last, because
	// the store measures time in larger steps. None ends sooner. 0 means that the store is precise
	// to a millisecond.
	Grain time.Duration

	// Restart is what a restart of the store's server (for a store without
	// one: of its process or host) does to holds.
	Restart Fate

	// Failover is what happens to holds when the server's role moves to
	// another machine.
	Failover Fate

	// Fair means that the store keeps a queue for each name (AcquireRequest.Queue) and is a
	// Notifier: waiters of different processes are served in the order in which they came, and no
	// request takes a name past them. (Within one client they always are.)
	Fair bool

	// Detached means that a hold requested with AcquireRequest.Detached outlives
	// the process and the Store that sent the request. A store that does not claim
	// it refuses such a request with ErrUnsupported.
	Detached bool

	// Shared means that the store grants shared holds, and Limited that it grants limited ones
	// (AcquireRequest.Limit).
	Shared  bool
	Limited bool

	// Lookup, List, Break, Metadata and Keep mean that the store does these. A store
	// that does not claim Lookup refuses it, or reports of the holds of others only
	// that they exist, and by which session. A store that does not claim Metadata
	// drops it. A store that does not claim Keep refuses a Release that requests it.
	Lookup   bool
	List     bool
	Break    bool
	Metadata bool
	Keep     bool
}

// Scope is how far a store's exclusion reaches.
type Scope uint8

const (
	// ScopeProcess means that the goroutines of one process exclude each other.
	ScopeProcess Scope = iota + 1

	// ScopeHost means that the processes of one host exclude each other, until it
	// reboots.
	ScopeHost

	// ScopeNetwork means that all processes that reach the same servers exclude
	// each other.
	ScopeNetwork
)

func (s Scope) String() string {
	switch s {
	case ScopeProcess:
		return "process"
	case ScopeHost:
		return "host"
	case ScopeNetwork:
		return "network"
	}
	return "unknown"
}

// Recovery is when the locks of a crashed process become free.
type Recovery uint8

const (
	// RecoveryTTL means that locks become free when their TTL has run out.
	RecoveryTTL Recovery = iota + 1

	// RecoveryAtOnce means that locks become free as soon as the operating system
	// sees the crash, and at the TTL at the latest.
	RecoveryAtOnce
)

func (r Recovery) String() string {
	switch r {
	case RecoveryTTL:
		return "at the TTL"
	case RecoveryAtOnce:
		return "at once"
	}
	return "unknown"
}

// Fate is what an event does to the holds of a store.
type Fate uint8

const (
	// FateKept means that holds survive, and exclusion with them.
	FateKept Fate = iota + 1

	// FateFreed means that holds end together with their holders, which were part
	// of what was restarted. Exclusion is not in danger.
	FateFreed

	// FateForgotten means that holds may be forgotten while their holders still rely
	// on them: two holders may run at once. Their fencing tokens still differ.
	FateForgotten
)

func (f Fate) String() string {
	switch f {
	case FateKept:
		return "kept"
	case FateFreed:
		return "freed"
	case FateForgotten:
		return "may be forgotten"
	}
	return "unknown"
}

package driver

// Guarantees says what a store promises. Package drivertest checks each of them
// both ways: what is claimed must work, and what is not claimed must be refused
// with ErrUnsupported, never silently done by halves.
type Guarantees struct {
	// Store is the kind of store in a word, for messages and logs: "memory".
	Store string

	// Scope is how far exclusion reaches.
	Scope Scope

	// Blocking is how long a call can keep its caller.
	Blocking Blocking

	// Fencing: every grant has a token, as the package comment describes.
	Fencing bool

	// HolderCrash is when the locks of a process that died become free.
	HolderCrash Recovery

	// Restart is what a restart of the store's server (for a store without
	// one: of its process or host) does to holds.
	Restart Fate

	// Failover is what becomes of holds when the server's role moves to
	// another machine.
	Failover Fate

	// Fair: waiters of different processes are served in the order in which
	// they came. (Within one client they always are.)
	Fair bool

	// Push: the store implements Watcher, and waiters are woken at release. A
	// store that implements Watcher and does not claim Push returns
	// ErrUnsupported from Watch.
	Push bool

	// Supervised: wake-ups do not stay lost. Each Release and Break, by whatever
	// client, is told by the server itself and not by whoever asked for it, and
	// the store tests what it is told by: a watch that may be missing something
	// is signalled, and again every two seconds until it is in force anew. That a
	// connection has died without a word may take the store five seconds to
	// notice, and for one who has waited longer than that as long again. Waiters
	// then try by themselves but seldom.
	Supervised bool

	// Detached: a hold that was asked for as AcquireRequest.Detached outlives
	// the process and the Store that asked. A store that does not claim it
	// refuses such a request with ErrUnsupported.
	Detached bool

	// Lookup, List, Break, Metadata and Keep: the store does these. One that
	// does not do Metadata drops it; one that does not do Keep refuses a
	// Release that asks for it.
	Lookup   bool
	List     bool
	Break    bool
	Metadata bool
	Keep     bool
}

// Scope is how far a store's exclusion reaches.
type Scope uint8

const (
	// ScopeProcess: among the goroutines of one process.
	ScopeProcess Scope = iota + 1

	// ScopeHost: among the processes of one host, until it reboots.
	ScopeHost

	// ScopeNetwork: among all that reach the same servers.
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

// Blocking is how long Acquire, Renew, Release, Lookup and Break can keep their
// caller. Package holdfast guards its callers accordingly.
type Blocking uint8

const (
	// BlocksForLong: for as long as a disk or a server hangs, perhaps. Each call
	// is made in a goroutine of its own, which is left to itself when its time
	// is over.
	BlocksForLong Blocking = iota

	// BlocksToDeadline: a second beyond the deadline of its context at most,
	// whatever the server and the network do. A caller who cannot be cancelled
	// makes the call himself, which is much quicker.
	BlocksToDeadline

	// BlocksToContext: as BlocksToDeadline, and an Acquire returns at once when
	// its context is cancelled, too, unless its request is Patient. What it has
	// sent goes on; a Release that follows takes effect after it. A caller
	// acquires himself then whether he can be cancelled or not.
	BlocksToContext

	// BlocksNever: a call does no input or output and waits for none. It is made
	// as it is.
	BlocksNever
)

func (b Blocking) String() string {
	switch b {
	case BlocksForLong:
		return "for long"
	case BlocksToDeadline:
		return "to its deadline"
	case BlocksToContext:
		return "to the end of its context"
	case BlocksNever:
		return "never"
	}
	return "unknown"
}

// Recovery is when a crashed process's locks become free.
type Recovery uint8

const (
	// RecoveryTTL: when their TTL has run out.
	RecoveryTTL Recovery = iota + 1

	// RecoveryAtOnce: as soon as the crash is seen by the operating system, and
	// at the TTL at the latest.
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
	// FateKept: holds survive, and exclusion with them.
	FateKept Fate = iota + 1

	// FateFreed: holds end, and their holders with them: they lived in what was
	// restarted. Exclusion is not in danger.
	FateFreed

	// FateForgotten: holds may be forgotten while their holders still believe
	// in them: two may run at once. Fencing tokens still tell them apart.
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

package driver

import "time"

// Guarantees are what a store promises. It refuses what it does not claim. What no field names
// (Lookup, List, Break, Detached, Metadata) it does or refuses.
type Guarantees struct {
	Store   string // the kind of store in a word, for messages and logs: "memory"
	Fencing bool   // every grant has a token, as the package comment describes

	// Queue means that Request.Place makes a place, and that the places of all clients are served
	// in order. A store without it may keep waiting requests out of order, or none.
	Queue bool

	// Limits means that the store takes any Request.Limit. A store without it refuses those above
	// 1, perhaps except Shared.
	Limits bool

	Keep   bool // the store does ReleaseRequest.Keep
	Tokens int  // the greatest Request.Tokens; 0 means 1

	// Grain is how much longer than its TTL, Place or Keep an entry may last. None ends sooner. 0
	// means a millisecond. A store without a clock of its own counts from when it has first seen an
	// entry renewed.
	Grain time.Duration

	// Crash is what becomes of the entries of a process that dies, Restart of those of a server
	// that restarts (of a store without one: its host or process), and Failover when the server's
	// role moves to another machine.
	Crash, Restart, Failover Fate

	// InProcess means that the store is in the memory of this process and answers at once. The
	// requests of package holdfast have no deadline then.
	InProcess bool
}

// A Fate is what an event does to the entries of a store.
type Fate uint8

const (
	// FateKept means that entries survive until their time is over, and exclusion with them.
	FateKept Fate = iota + 1

	// FateFreed means that entries end together with their owners. Exclusion is not in danger.
	FateFreed

	// FateForgotten means that entries may be forgotten while their owners still rely on them: two
	// holders may run at once. Their fencing tokens still differ.
	FateForgotten
)

// Package memstore keeps locks in the memory of one process. It serves goroutines that exclude each
// other by name, and tests of code that uses package holdfast. It is the reference that other
// stores are compared with. Under testing/synctest it runs in virtual time: hours of leases pass in
// milliseconds.
//
// # Guarantees
//
// Holders exclude each other if they share one store (New) or one named store (Named).
//
// Fencing tokens rise strictly for each name, as long as the process lives. They rise over restarts
// of the process too, since a new counter starts at the wall clock, as long as that clock is not
// set back and has passed every floor that was requested. A floor affects only its own name.
//
// Expiry is measured on the process's monotonic clock. Waiters hold the name in the order in which
// they came. The memory of a name is freed at a later Acquire after its hold has ended.
//
// # What can go wrong
//
// Two processes never exclude each other here, even if their stores have the same name. All locks
// are gone when the process ends.
//
// # Server set-up
//
// None.
//
// # URL
//
// memory://name is the store of that name in this process. All Stores opened with that URL share
// their locks, until the last of them is closed. memory: is such a store, with an empty name. New
// returns a store that is not shared. There are no parameters.
package memstore

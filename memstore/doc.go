// Package memstore keeps locks in the memory of one process: for goroutines
// that exclude each other by name, for tests of code that uses package
// holdfast, and as the reference that other stores are compared with.
//
// Under testing/synctest it runs in virtual time: hours of leases pass in
// milliseconds.
//
// # Guarantees
//
// Exclusion among all who share one store (New) or one named store (Named).
// Fencing tokens that rise strictly for each name, as long as the process lives;
// and over restarts of the process too, since a fresh counter starts at the wall
// clock, as long as that is not set back and has passed every floor that was
// asked for. A floor concerns its name alone. Expiry is
// counted on the process's monotonic clock. Waiters are woken at release. The
// memory of a name is given back soon after its hold has ended.
//
// # What can go wrong
//
// Two processes never exclude each other here, however alike their stores are
// named. What the process knew is gone when it ends.
//
// # Server set-up
//
// None.
//
// # URL
//
// memory: is a new store of its own; memory://name is the store of that name in
// this process, the same for everybody who opens it. There are no parameters.
package memstore

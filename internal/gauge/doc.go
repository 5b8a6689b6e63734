// Package gauge measures what locks cost on a store that somebody has, by the
// same calls that his program would make: how long an acquisition and a release
// take, how many there can be in a second, how soon a lock that one process
// releases is had by another, who gets it how often, and what goes over the
// network for it.
//
// What it prints are figures of this machine, this moment and this store. They
// are good for a comparison with others that were taken in the same way.
package gauge

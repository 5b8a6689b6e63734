//go:build unix

package main

// A placement is where the client and the servers of a scenario run. At one goroutine it decides
// more than any library: on one core nothing has to be woken on another.
type placement int

const (
	anyCore  placement = iota // where the system puts them
	oneCore                   // all of them on one core
	twoCores                  // the client on one core, and the servers on another
)

// suffix returns what the placement adds to the name of a scenario.
func (p placement) suffix() string { return [...]string{"", "-one-core", "-two-cores"}[p] }

// Package measure measures the cost of locks: how long an acquisition and a release take, how
// many there can be in a second, how soon a lock that one process releases is acquired by
// another, how evenly contenders get it, and how much CPU time, memory and traffic that takes.
//
// [Run] makes all measurements of "holdfast bench" on an existing store. The program in bench/
// uses the same loops, worker processes and statistics for other libraries: it adds a [Locker]
// for each of them, and servers.
//
// The results are figures of this machine, this moment and this store. They can be compared
// with others that were taken in the same way.
package measure

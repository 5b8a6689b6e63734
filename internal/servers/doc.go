// Package servers runs real servers, for tests and for programs that test locks: separate
// processes on free ports of this host, with their data in temporary folders.
//
// A server is ready when the function that starts it returns. It is stopped when the test
// ends, however it ends, or when a [Host] is closed. On Linux it is also killed with the
// process that started it. A program that is not installed fails the test and is never a
// reason to skip it: scripts/needs installs what is missing. There are no such servers on
// Windows; there this package is empty.
package servers

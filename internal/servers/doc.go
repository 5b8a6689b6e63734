// Package servers runs real servers for tests: processes of their own on free
// ports of this host, with their data in temporary folders.
//
// A server is ready when the function that starts it returns, and is stopped
// when the test ends, however it ends; on Linux it is killed with the test
// process, too, if that is killed. A program that is not installed fails the
// test and is never a reason to skip it: install.sh installs what is missing.
// There are no such servers on Windows; there this package is empty.
package servers

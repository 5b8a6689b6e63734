// Package servers runs real servers, for tests and for programs that test locks: separate processes
// on free ports of this host, with their data in temporary folders.
//
// The environment variables TEST_REDIS_SERVER, TEST_ETCD_SERVER and TEST_S3_SERVER name programs to
// run in place of those on the PATH, so that the same tests run on Valkey (see valkey.sh) and on
// other versions (see fromsource.sh).
//
// A server is ready when the function that starts it returns. It is stopped when the test ends,
// however it ends, or when a [Host] is closed. On Linux it is also killed with the process that
// started it. A program that is not installed fails the test and is never a reason to skip it:
// scripts/needs installs what is missing. There are no such servers on Windows; there this package
// is empty.
package servers

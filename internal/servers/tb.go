//go:build unix

package servers

// A TB is the owner of a server: a test or benchmark (any testing.TB), or a [Host]. Fatal
// and Fatalf do not return. They, and the methods of servers, are called on the goroutine
// of the test.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Error(args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	TempDir() string
	Cleanup(func())
}

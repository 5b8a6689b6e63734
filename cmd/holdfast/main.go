// Holdfast holds a distributed lock while a command runs. See docs/cli.md, or run "holdfast
// help".
package main

import "os"

func main() {
	os.Exit(reportError(os.Stderr, newRoot(os.Args[1:]).Execute()))
}

//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: there are no servers to measure on this system: run it on Linux or macOS")
	os.Exit(1)
}

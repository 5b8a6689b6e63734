package main

import "github.com/spf13/cobra"

// bench and torture stop processes and compare their clocks, which cannot be
// done here.
func newBench(*cli) []*cobra.Command   { return nil }
func newTorture(*cli) []*cobra.Command { return nil }

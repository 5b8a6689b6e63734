package command

import "github.com/spf13/cobra"

// newBench and newTorture return nothing: bench and torture stop processes and compare their
// clocks, which Windows does not support.
func newBench(*cli) []*cobra.Command   { return nil }
func newTorture(*cli) []*cobra.Command { return nil }

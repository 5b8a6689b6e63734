package main

import (
	"github.com/spf13/cobra"
)

// A cli is what all subcommands share: the flags that each of them has.
type cli struct {
	store   stores
	quiet   bool
	verbose bool
}

// newRoot puts the program together. Every subcommand has a file of its own with
// a function that makes it.
func newRoot() *cobra.Command {
	c := &cli{store: stores{urls: []string{"file:"}}}
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Hold a distributed lock while a command runs",
		Long: `Holdfast holds a distributed lock while a command runs.

Every flag can be given by an environment variable too: --kill-after is
HOLDFAST_KILL_AFTER. The flag wins.`,
		Args:          cobra.NoArgs,
		SilenceErrors: true, // main reports them
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return applyEnvironment(cmd.Flags())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.Var(&c.store, "store", "URL of the store that keeps the locks; given several times, of the nodes of a quorum")
	flags.BoolVarP(&c.quiet, "quiet", "q", false, "say nothing; the exit code tells")
	flags.BoolVarP(&c.verbose, "verbose", "v", false, "tell what happens to the lock")

	root.AddCommand(newRun(c), newLs(c), newShow(c), newWait(c), newBreak(c), newWatch(c),
		newMigrate(c), newVersion(c), newCompletion(c), newMan(c))
	root.AddCommand(newAcquire(c), newRenew(c), newRelease(c), newOnce(c), newElect(c))
	root.AddCommand(newBench(c)...)
	root.AddCommand(newTorture(c)...)
	c.completeNames(root)
	c.addVersionFlag(root)
	return root
}

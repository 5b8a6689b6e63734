// Package command is the program holdfast. The main packages are elsewhere, so that each links the
// stores that it needs: cmd/holdfast those of this module, etcdstore/cmd/holdfast-etcd etcd as
// well.
package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/internal/supervise"
)

// Main runs the program. A write to a pipe without a reader returns an error, instead of ending the
// program before it has released its lock. The programs that it starts do not
// inherit that, as they would an ignored signal.
func Main() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	c, out := &cli{}, &output{}
	root := newRoot(c, os.Args[1:])
	root.SetOut(out)
	root.SetErr(io.Discard)         // what cobra says of the same error
	root.InitDefaultCompletionCmd() // which keeps the output that is set
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = noSuchCommand, root.RunE
	}
	err := root.Execute()
	err = cmp.Or(err, out.err)
	code := c.report(os.Stderr, err)
	if interrupt := (*supervise.Interrupt)(nil); errors.As(err, &interrupt) {
		supervise.EndBy(interrupt.Signal)
	}
	os.Exit(code)
}

// Root returns the command line of the program, for those that describe it.
func Root() *cobra.Command { return newRoot(&cli{}, nil) }

// A cli holds the flags that all subcommands share.
type cli struct {
	store     stores
	quiet     bool
	verbose   bool
	maxOutage time.Duration // of the subcommands that wait; 0 is the default
	json      bool          // of the subcommands with --json
}

// addMaxOutage adds the flag that bounds a wait while the store does not answer.
func (c *cli) addMaxOutage(f *pflag.FlagSet) {
	durationVar(f, &c.maxOutage, "max-outage", 10*time.Second, "how long a wait goes on while the store does not answer")
}

// checkMaxOutage refuses what package holdfast would take for the default.
func (c *cli) checkMaxOutage() error {
	return checkDuration("max-outage", c.maxOutage, time.Millisecond)
}

// newRoot assembles the program for a command line. Every subcommand has a file of its own with a
// function that creates it. "run" leaves out the others, since it is started twice for each command
// and must start fast.
func newRoot(c *cli, args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Hold a distributed lock while a command runs",
		Long: `Holdfast holds a distributed lock while a command runs.

Every flag can be given by an environment variable too: --kill-after is
HOLDFAST_KILL_AFTER. The flag wins. Durations are 30s, 5m, 1d; a number alone is
seconds.

Exit code of every subcommand, beside its own:
   64  the command line, a name or a URL is wrong, or the store cannot do this
   69  the store cannot be reached, or a record is damaged
   74  standard output cannot be written
128+n  signal n has ended it`,
		Args:    noSuchCommand,
		Version: readBuildInfo().String(),

		SuggestionsMinimumDistance: 2,

		SilenceErrors: true, // Main reports them
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := applyEnvironment(cmd.Flags()); err != nil {
				return err
			}
			if err := c.store.executeForStore(); err != nil {
				return err
			}
			if os.Getenv("HOLDFAST_SUPERVISOR") == "" { // else its parent has reported them
				for _, name := range unknownVariables() {
					c.notice(os.Stderr, "warning: environment variable %s: there is no such flag", name)
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringArrayVar((*[]string)(&c.store), "store", []string{"file:"}, "`URL` of the store that keeps the locks; given several times, of the nodes of a quorum")
	flags.BoolVarP(&c.quiet, "quiet", "q", false, "write nothing on standard error; see the exit code")
	flags.BoolVarP(&c.verbose, "verbose", "v", false, "report what happens to the lock")

	root.AddCommand(newRun(c))
	if len(args) == 0 || args[0] != "run" {
		root.AddCommand(newElect(c), newOnce(c), newAcquire(c), newRenew(c), newRelease(c), newLs(c), newShow(c),
			newWait(c), newBreak(c), newUI(c), newMigrate(c), newDoctor(c), newVersion(c))
	}
	root.SetVersionTemplate("holdfast {{.Version}}\n")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(err, cmd.CommandPath()+" --help")
	})
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if strings.Contains(cmd.Use, " NAME") || strings.Contains(cmd.Use, " [PREFIX]") {
			cmd.ValidArgsFunction = c.completeName
		}
		if cmd.Name() == "help" {
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if found, _, err := root.Find(args); err != nil || found == root {
					return noSuchCommand(root, args)
				}
				return nil
			}
		}
	}
	return root
}

// noSuchCommand checks the arguments of a command that has subcommands, without one of them.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	try := "--help"
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		try = similar[0]
	}
	try = cmd.CommandPath() + " " + try
	return usageError(fmt.Errorf("there is no subcommand %q", args[0]), try)
}

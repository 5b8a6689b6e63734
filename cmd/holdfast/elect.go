package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/supervise"
)

const electLong = `Elect runs the command while we are the leader: of all that stand for NAME one at a
time is, and its command alone runs. The others wait. When the leadership is lost,
since the store cannot be reached or the lock was broken, the command is stopped,
and started anew as soon as we are elected again. When it ends by itself or by a
signal that it got from us, so do we, and another leads.

As with "holdfast run", the command and all its descendants are dead before anyone
else can lead. It finds the term in HOLDFAST_TOKEN, which is greater than that of
every leader before.

Exit code: that of the command, 128+n if signal n has killed it; or
   64  the command line is wrong
   69  the store could not be reached at the start
  121  the command was stopped: the lock was lost and a signal had told us to
       end, or the process that keeps the lock has died
  122  the command has ended, but the lock had been lost, or its release is
       not confirmed
  126  the command cannot be executed
  127  there is no such command`

const electExample = `  holdfast elect scheduler --store "$LOCKS" -- /usr/local/bin/scheduler`

const (
	// outageOfCandidates is how long a candidate bears with a store that does not
	// answer: for as long as it takes.
	outageOfCandidates = 365 * 24 * time.Hour

	// retryElection is how long a former leader waits before it asks again a store
	// that it cannot reach.
	retryElection = time.Second
)

func newElect(c *cli) *cobra.Command {
	r := &runCommand{cli: c, form: "holdfast elect NAME -- COMMAND", wait: forever, elect: true}
	cmd := &cobra.Command{
		Use:     "elect NAME [flags] -- COMMAND [ARGUMENT...]",
		Short:   "Run a command while being the leader",
		Long:    electLong,
		Example: electExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.read(cmd.Flags(), args); err != nil {
				return err
			}
			return r.run()
		},
	}
	r.addFlags(cmd.Flags())
	return cmd
}

// stand runs the command again each time its lock was lost. In the end s tells of
// the last time.
func (r *runCommand) stand(k *supervise.Keeper, client *holdfast.Client, path string, s *status) *exit {
	for terms := 0; ; {
		*s = status{Name: r.name}
		e := r.turn(k, client, path, s, time.Now())
		if k.Context().Err() != nil {
			return e
		}
		switch {
		case s.Outcome == lost:
			terms++
			report(r.out(k), &exit{err: fmt.Errorf("%w; standing again", e.err)})
		case terms > 0 && errors.Is(e.err, holdfast.ErrUnavailable) && s.Outcome == unavailable:
			select {
			case <-time.After(retryElection):
			case <-k.Context().Done():
			}
		default:
			return e
		}
	}
}

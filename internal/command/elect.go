package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/internal/supervise"
)

const (
	// candidateMaxOutage is how long a candidate tolerates a store that does not answer. It is
	// long enough to wait however long the outage lasts.
	candidateMaxOutage = 365 * 24 * time.Hour

	// electionRetryDelay is how long a former leader waits before it tries a store again that
	// it cannot reach.
	electionRetryDelay = time.Second
)

func newElect(c *cli) *cobra.Command {
	r := &runCommand{cli: c, form: "holdfast elect NAME -- COMMAND, or --http ADDRESS", hold: holdFlags{wait: waitForever}}
	r.work = r.campaign
	cmd := &cobra.Command{
		Use:   "elect NAME [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command while being the leader",
		Long: `Elect runs the command while this process is the leader. Of all candidates for
NAME, one at a time is, and its command alone runs. The others wait. When the
leadership is lost, since the store cannot be reached or the lock was broken,
the command is stopped, and started anew as soon as this process is elected
again. When it ends by itself, or by a signal from elect, elect ends, too, and
another leads.

As with "holdfast run", the command and all its descendants are dead before
anyone else can lead. The command finds the term in HOLDFAST_TOKEN: a number
above the term of every leader before.

With --http, GET /leader answers 200 if this process leads and 503 if not, with
an object that says who does; GET /healthz answers 200. Without a command, the
programs that ask are the ones that do the work: nothing stops them. They ask
before each step, and pass the token on.

Exit code: ` + commandExitCodes + `
   78  the address of --http cannot be listened on`,
		Example: `  holdfast elect scheduler --store "$LOCKS" -- /usr/local/bin/scheduler
  holdfast elect scheduler --store "$LOCKS" --http 127.0.0.1:7071`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.http != "" && cmd.Flags().ArgsLenAtDash() < 0 && r.script == "" {
				return r.leadAlone(cmd.Flags(), args)
			}
			if err := r.parseArgs(cmd.Flags(), args); err != nil {
				return err
			}
			r.maxOutage = candidateMaxOutage
			return r.runSupervised()
		},
	}
	r.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&r.http, "http", "", "the `ADDRESS` at which GET /leader answers whether this process leads")
	return cmd
}

// campaign runs the command again each time its lock was lost.
func (r *runCommand) campaign(sup *supervise.Supervisor, client *holdfast.Client, path string) *exitError {
	r.standby = time.AfterFunc(time.Second, reportReady)
	for {
		e := r.acquireAndRun(sup, client, path)
		if sup.Context().Err() != nil {
			return e
		}
		switch {
		case e.code == exitLost && e.err != nil: // else it is the command's own code
			r.notice(sup, "%w; standing again", e.err)
		case r.led && e.code == exitUnavailable && errors.Is(e.err, holdfast.ErrUnavailable):
			select {
			case <-time.After(electionRetryDelay):
			case <-sup.Context().Done():
			}
		default:
			return e
		}
	}
}

// servePage starts the page of --http. Stop returns when its answers that are under way are
// written.
func (r *runCommand) servePage(client *holdfast.Client, w io.Writer) (stop func(), err error) {
	if r.http == "" {
		return func() {}, nil
	}
	r.page = &leaderPage{client: client, name: r.name}
	address, stopServer, err := r.startServer(context.Background(), r.http, r.page.handler())
	if err != nil {
		return nil, err
	}
	r.notice(w, "http://%s/leader tells whether this process leads", address)
	return func() { stopServer(leaderLookupTimeout + time.Second) }, nil // more than an answer takes
}

// leadAlone stands for election without a command, for the programs that ask the page.
func (r *runCommand) leadAlone(flags *pflag.FlagSet, args []string) error {
	if len(args) != 1 {
		return usageError(fmt.Errorf("want one name, got %d", len(args)), "holdfast elect NAME --http ADDRESS")
	}
	for _, name := range []string{"max-hold", "on-lost", "kill-after", "shell", "command"} {
		if flags.Changed(name) || name == "max-hold" && r.maxHold != 0 {
			return usageError(fmt.Errorf("--%s, or %s, is for a command, and there is none", name, envVar(name)), r.form)
		}
	}
	if err := checkTTL(r.ttl); err != nil {
		return err
	}
	r.name = args[0]
	return r.inspect(func(ctx context.Context, client *holdfast.Client) error {
		stopPage, err := r.servePage(client, os.Stderr)
		if err != nil {
			return err
		}
		defer stopPage()
		reportReady()
		options := &election.Options{TTL: r.ttl, Metadata: r.meta, Logger: r.logger(os.Stderr, slog.LevelInfo)}
		return election.New(client, r.name, options).Run(ctx, func(ctx context.Context, _ election.Term) error {
			r.page.lock.Store(holdfast.FromContext(ctx))
			defer r.page.lock.Store(nil)
			<-ctx.Done()
			return ctx.Err()
		})
	})
}

// reportReady tells a service manager that a candidate is ready which waits, or has no command: a
// command, which does that itself, may not be started for days. See sd_notify(3).
func reportReady() {
	if conn, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET")); err == nil {
		_, _ = conn.Write([]byte("READY=1")) // nobody can do anything about an error
		_ = conn.Close()
	}
}

package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/supervise"
)

// commandExitCodes are those of "run", "elect" and "once".
const commandExitCodes = `the code of the command, 128+n if signal n has killed it; or
  121  the lock was lost, and the command was stopped
  122  the command has ended, but the lock had been lost, or its release is
       not confirmed
  126  the command cannot be executed
  127  there is no such command`

// A runCommand is "holdfast run", "elect" or "once" with its flags.
type runCommand struct {
	*cli
	form    string // of the command line
	work    func(sup *supervise.Supervisor, client *holdfast.Client, path string) *exitError
	standby *time.Timer // of elect, until there is a lock
	led     bool        // elect has had the lock
	http    string      // of elect: the address of its page
	page    *leaderPage // of elect, nil without --http
	name    string
	command []string

	ttl, minHold, maxHold time.Duration
	killAfter             time.Duration
	hold                  holdFlags
	shell                 bool
	slots                 slotFlags // of once
	atMostOnce            bool
	script                string
	onLost                supervise.Policy
	conflictCode          int
	meta                  metadata
}

func newRun(c *cli) *cobra.Command {
	r := &runCommand{cli: c, form: "holdfast run NAME -- COMMAND", hold: holdFlags{wait: waitForever}}
	r.work = r.acquireAndRun
	cmd := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long: `Run waits for the lock, runs the command, and gives the lock back.

The command and all its descendants are dead before anyone else can have the
lock. What the command leaves behind when it ends gets 200 ms to end as well,
then SIGTERM, then SIGKILL after --kill-after. If the lock cannot be renewed,
all of them get SIGTERM, and SIGKILL before the store can give the lock to
another. If holdfast itself is killed, they die with it. Where that ends (both
processes of holdfast stopped, sudo, the connection of an advisory lock cut at
the server, and more) is listed in docs/cli.md.

The command finds HOLDFAST_NAME, HOLDFAST_TOKEN and HOLDFAST_HOLDER in its
environment. It has our standard input, output and error, and gets our signals.

Exit code: ` + commandExitCodes + `
   75  the lock is held by another (-E chooses another code, flock's is 1)`,
		Example: `  holdfast run backup -- rsync -a /data /mnt/backup
  holdfast run report --try -E 0 -- ./report.sh      # cron: one at a time
  holdfast run deploy --wait 5m --shell -- 'make && make install'
  holdfast run downloads --limit 3 -- wget "$url"     # three at a time
  holdfast run -n deploy -c 'make && make install'   # as with flock(1)`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.checkMaxOutage(); err != nil {
				return err
			}
			if err := r.parseArgs(cmd.Flags(), args); err != nil {
				return err
			}
			return r.runSupervised()
		},
	}
	f := cmd.Flags()
	r.hold.addTo(f, "w", "n")
	r.addMaxOutage(f)
	durationVar(f, &r.minHold, "min-hold", 0, "keep the lock taken at least that long, even if the command ends sooner: at most one run in that time")
	r.conflictCode = exitBusy
	f.FuncP("conflict-exit-code", "E", "exit `CODE` if the lock could not be had (default 75)", func(text string) error {
		code, err := strconv.ParseUint(text, 0, 8)
		if err != nil {
			return errors.New("want an exit code from 0 to 255")
		}
		r.conflictCode = int(code)
		return nil
	})
	r.addFlags(f)
	return cmd
}

// addFlags adds the flags that do not concern how to get the lock.
func (r *runCommand) addFlags(f *pflag.FlagSet) {
	durationVar(f, &r.ttl, "ttl", holdfast.DefaultTTL, "how long the store keeps the lock without a renewal: how soon a dead host is replaced, not how long the command may run")
	durationVar(f, &r.maxHold, "max-hold", 0, "the longest hold: SIGTERM comes --kill-after and 0.5s before it is over, SIGKILL 0.5s before; 0 is no limit")
	f.Func("on-lost", "the `POLICY` for the command when the lock is lost: kill, term or ignore (default kill)", func(text string) error {
		policy, ok := map[string]supervise.Policy{"kill": supervise.Kill, "term": supervise.Term, "ignore": supervise.Ignore}[text]
		if !ok {
			return errors.New("want kill, term or ignore")
		}
		r.onLost = policy
		return nil
	})
	durationVar(f, &r.killAfter, "kill-after", 0, "how long SIGTERM comes before SIGKILL (default the lesser of 5s and a sixth of the TTL)")
	r.meta = metadata{}
	f.Func("meta", metaUsage, r.meta.set)
	f.BoolVar(&r.shell, "shell", false, "the command after the -- is one argument, for the shell")
	f.StringVarP(&r.script, "command", "c", "", "a command for $SHELL -c (else /bin/sh -c; Windows: cmd /C), not one after the --")
}

// parseArgs checks flags and arguments together.
func (r *runCommand) parseArgs(flags *pflag.FlagSet, args []string) error {
	dash := flags.ArgsLenAtDash()
	switch scripted := flags.Changed("command") || dash < 0 && r.script != ""; {
	case scripted && dash >= 0:
		return usageError(errors.New("-c and a command after the -- exclude each other"), "one of them")
	case scripted && len(args) != 1:
		return usageError(fmt.Errorf("want one name beside -c, got %d", len(args)), "holdfast "+flags.Name()+" NAME -c 'COMMAND'")
	case scripted && r.script == "":
		return usageError(errors.New("no command after -c"), "holdfast "+flags.Name()+" NAME -c 'COMMAND'")
	case scripted:
		r.name, r.command = args[0], shellCommand(r.script)
	case dash < 0:
		return usageError(errors.New("no -- before the command"), r.form)
	case dash != 1:
		return usageError(fmt.Errorf("want one name before the --, got %d", dash), r.form)
	case len(args) < 2 || args[1] == "":
		return usageError(errors.New("no command after the --"), r.form)
	case r.shell && len(args) > 2:
		return usageError(errors.New("--shell takes the command as one argument"), "--shell -- 'COMMAND | COMMAND'")
	default:
		r.name, r.command = args[0], args[1:]
		if r.shell {
			r.command = shellCommand(r.command[0])
		}
	}
	if err := r.hold.check(flags); err != nil {
		return err
	}
	return r.checkTimes(flags.Changed("kill-after") || os.Getenv(envVar("kill-after")) != "")
}

// shellCommand returns the command that runs a script by the user's shell, as flock(1) does.
func shellCommand(script string) []string {
	if runtime.GOOS == "windows" {
		return []string{"cmd", "/C", script}
	}
	return []string{cmp.Or(os.Getenv("SHELL"), "/bin/sh"), "-c", script}
}

// runSupervised is the main function of both processes: see package supervise.
func (r *runCommand) runSupervised() error {
	path, err := exec.LookPath(r.command[0])
	if err != nil && (!errors.Is(err, exec.ErrDot) || runtime.GOOS == "windows") { // else the user's PATH has a "."
		return cannotExecute(r.command[0], err)
	}
	code, err := supervise.Run(func(sup *supervise.Supervisor) int {
		return r.report(sup, r.withClient(sup, path))
	}, func(w io.Writer, pids []int) {
		r.notice(w, "processes that were killed have not ended (%s): they have another user's rights, "+
			"or wait in the kernel; still waiting for them", strings.Trim(fmt.Sprint(pids), "[]"))
	})
	switch {
	case errors.Is(err, supervise.ErrDied), errors.Is(err, supervise.ErrHung):
		return &exitError{exitLost, fmt.Errorf("%w; its command was stopped", err), ""}
	case err != nil:
		return &exitError{exitCannotRun, err, ""}
	}
	return &exitError{code: code}
}

// cannotExecute distinguishes a command that does not exist from one that cannot be executed.
func cannotExecute(name string, err error) *exitError {
	var detail *exec.Error
	if errors.As(err, &detail) {
		err = detail.Err
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrDot) {
		return &exitError{exitNotFound, fmt.Errorf("there is no command %q", name), "its full path, or --shell for a command of the shell"}
	}
	return &exitError{exitCannotRun, fmt.Errorf("cannot execute %q: %w", name, err), "chmod +x, or --shell"}
}

// maxKillAfter is the default of --kill-after where the TTL leaves room for it; elsewhere the
// default is a sixth of the TTL.
const maxKillAfter = 5 * time.Second

// checkTimes sets --kill-after if it is not given, and refuses times that leave no room for
// stopping the command.
func (r *runCommand) checkTimes(killAfterGiven bool) error {
	if err := cmp.Or(checkDuration("min-hold", r.minHold, 0), checkDuration("max-hold", r.maxHold, 0), checkDuration("kill-after", r.killAfter, 0)); err != nil {
		return err
	}
	if !killAfterGiven {
		r.killAfter = max(0, min(maxKillAfter, r.ttl/6))
	}
	if r.onLost == supervise.Ignore {
		return checkTTL(r.ttl)
	}
	// A renewal that fails at a third of the TTL leaves two thirds of it, less 1 % and 2 ms for
	// clocks that differ: see driver.Validity.
	left := r.killAfter + supervise.Margin + 2*time.Millisecond
	least := (left/197*300 + 10*time.Millisecond).Truncate(10 * time.Millisecond)
	if !killAfterGiven && r.killAfter < maxKillAfter {
		least = 1030 * time.Millisecond // which leaves room for a sixth of it
	}
	if r.ttl < least {
		return usageError(fmt.Errorf("a TTL of %v is too short, and must be from %v to %v: if the lock cannot be renewed, the command must have got "+
			"SIGTERM and, %v later, SIGKILL within it", r.ttl, least, driver.MaxTTL, r.killAfter.Round(time.Millisecond)), fmt.Sprintf("--ttl %v", least))
	}
	if err := checkTTL(r.ttl); err != nil {
		return err
	}
	if least := r.killAfter + 2*supervise.Margin; r.maxHold > 0 && r.maxHold < least {
		return usageError(fmt.Errorf("a --max-hold of %v is too short: the command must have got SIGTERM and, %v later, "+
			"SIGKILL within it", r.maxHold, r.killAfter.Round(time.Millisecond)), fmt.Sprintf("--max-hold %v", least))
	}
	return nil
}

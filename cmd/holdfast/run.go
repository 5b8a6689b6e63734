package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/supervise"
)

const runLong = `Run waits for the lock, runs the command, and gives the lock back.

The command and all its descendants are dead before anyone else can have the
lock. What the command leaves behind when it ends gets 200 ms to end as well,
then SIGTERM, then SIGKILL after --kill-after. If the lock cannot be renewed, all
of them get SIGTERM, and SIGKILL before the store can give the lock to another.
If holdfast itself is killed, they die with it.

The command finds HOLDFAST_NAME, HOLDFAST_TOKEN and HOLDFAST_HOLDER in its
environment. It has our standard input, output and error, and gets our signals.

Exit code: that of the command, 128+n if signal n has killed it; or
   64  the command line is wrong
   69  the store cannot be reached
   75  the lock is held by another (-E chooses another code)
  121  the lock was lost, and the command was stopped
  122  the command has ended, but the lock had been lost, or its release is
       not confirmed
  126  the command cannot be executed
  127  there is no such command`

const runExample = `  holdfast run backup -- rsync -a /data /mnt/backup
  holdfast run report --try -E 0 -- ./report.sh      # cron: leave it to the one that runs
  holdfast run deploy --wait 5m --shell -- 'make && make install'`

// A runCommand is "holdfast run" with its flags.
type runCommand struct {
	*cli
	form    string // of the command line
	once    bool   // it is "holdfast once"
	elect   bool   // it is "holdfast elect"
	name    string
	command []string

	ttl, minHold, maxHold time.Duration
	killAfter             time.Duration
	wait                  patience
	try, shell            bool
	onLost                policy
	conflictCode          uint8
	meta                  map[string]string
	statusFile            string
}

func newRun(c *cli) *cobra.Command {
	r := &runCommand{cli: c, form: "holdfast run NAME -- COMMAND", wait: forever}
	cmd := &cobra.Command{
		Use:     "run NAME [flags] -- COMMAND [ARGUMENT...]",
		Short:   "Run a command while holding a lock",
		Long:    runLong,
		Example: runExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.read(cmd.Flags(), args); err != nil {
				return err
			}
			return r.run()
		},
	}
	f := cmd.Flags()
	f.Var(&r.wait, "wait", "how long to wait for the lock: a duration, 0 or forever")
	f.BoolVar(&r.try, "try", false, "do not wait for the lock, like --wait 0")
	f.DurationVar(&r.minHold, "min-hold", 0, "keep the lock taken at least that long, even if the command ends sooner")
	f.Uint8VarP(&r.conflictCode, "conflict-exit-code", "E", exitBusy, "exit code if the lock is held by another")
	r.addFlags(f)
	return cmd
}

// addFlags adds the flags that do not say how to get the lock.
func (r *runCommand) addFlags(f *pflag.FlagSet) {
	f.DurationVar(&r.ttl, "ttl", holdfast.DefaultTTL, "how long the store keeps the lock for a holder that it does not hear from")
	f.DurationVar(&r.maxHold, "max-hold", 0, "stop the command and give up the lock after that long; 0 is never")
	f.Var(&r.onLost, "on-lost", "what to do with the command when the lock is lost: kill, term or ignore")
	f.DurationVar(&r.killAfter, "kill-after", 0, "how long SIGTERM comes before SIGKILL (default the lesser of 5s and a sixth of the TTL)")
	f.StringToStringVar(&r.meta, "meta", nil, "key=value to show with the lock; may be repeated")
	f.StringVar(&r.statusFile, "status-file", "", "write how it went to this file, as JSON")
	f.BoolVar(&r.shell, "shell", false, "let the shell run the command, which is one argument then")
}

// read checks flags and arguments together.
func (r *runCommand) read(flags *pflag.FlagSet, args []string) error {
	switch dash := flags.ArgsLenAtDash(); {
	case dash < 0:
		return usage(errors.New("no -- before the command"), r.form)
	case dash != 1:
		return usage(fmt.Errorf("want one name before the --, got %d", dash), r.form)
	case len(args) < 2 || args[1] == "":
		return usage(errors.New("no command after the --"), r.form)
	case r.shell && len(args) > 2:
		return usage(errors.New("--shell takes the command as one argument"), "--shell -- 'COMMAND | COMMAND'")
	}
	r.name, r.command = args[0], args[1:]
	if r.shell {
		r.command = shellCommand(r.command[0])
	}
	var err error
	if r.try, err = triesOnly(flags, r.try, r.wait); err != nil {
		return err
	}
	given := flags.Changed("kill-after") || os.Getenv(twin("kill-after")) != ""
	if err := r.checkTimes(given); err != nil {
		return err
	}
	return r.checkStatusFile()
}

func shellCommand(script string) []string {
	if runtime.GOOS == "windows" {
		return []string{"cmd", "/C", script}
	}
	return []string{"/bin/sh", "-c", script}
}

// checkStatusFile removes what an earlier run has left: it must not be taken
// for the outcome of this one.
func (r *runCommand) checkStatusFile() error {
	if r.statusFile == "" {
		return nil
	}
	folder := filepath.Dir(r.statusFile)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return usage(fmt.Errorf("--status-file: there is no folder %q", folder), "mkdir")
	}
	if err := os.Remove(r.statusFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return usage(fmt.Errorf("--status-file: %w", err), "another file")
	}
	return nil
}

// run is the life of both processes: see package supervise.
func (r *runCommand) run() error {
	path, missing := program(r.command[0])
	if missing != nil {
		return r.finish(os.Stderr, &status{Name: r.name, Outcome: notStarted}, missing)
	}
	code, err := supervise.Run(func(k *supervise.Keeper) int {
		return r.keep(k, path)
	})
	switch {
	case errors.Is(err, supervise.ErrDied), errors.Is(err, supervise.ErrHung):
		return r.finish(os.Stderr, &status{Name: r.name, Outcome: lost},
			&exit{exitLost, fmt.Errorf("%w; nothing is left of its command", err), ""})
	case err != nil:
		return r.finish(os.Stderr, &status{Name: r.name, Outcome: notStarted}, &exit{exitCannotRun, err, ""})
	}
	return &exit{code: code}
}

// program finds the file to execute.
func program(name string) (string, *exit) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	return "", cannotStart(name, err)
}

// cannotStart tells a command that is not there from one that is no program.
func cannotStart(name string, err error) *exit {
	var detail *exec.Error
	if errors.As(err, &detail) {
		err = detail.Err
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrDot) {
		return &exit{exitNotFound, fmt.Errorf("there is no command %q", name), "its full path, or --shell for a command of the shell"}
	}
	return &exit{exitCannotRun, fmt.Errorf("cannot execute %q: %w", name, err), "chmod +x, or --shell"}
}

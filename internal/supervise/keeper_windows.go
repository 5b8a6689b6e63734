package supervise

import (
	"os"
	"os/signal"
	"syscall"
)

// Run runs body in this process and returns its exit code. On Windows a job
// object sees to it that the command and its descendants end when this process
// does, and nothing can stop a process but a debugger, so that there is no need
// for a second process.
func Run(body func(*Keeper) int) (int, error) {
	k := newKeeper(&lifeline{front: os.Getpid()})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for sig := range signals {
			k.interrupt(passedSignal{sig.(syscall.Signal), true})
		}
	}()
	return body(k), nil
}

// A lifeline is what a keeper needs of its front. Here it is both.
type lifeline struct{ front int }

func (l *lifeline) plant(cmd *Command) (*tree, error) { return plant(cmd) }

// plan has nobody to tell.
func (l *lifeline) plan(_, _ instant) {}

func (l *lifeline) clear() {}

func (l *lifeline) overruled() bool { return false }

// pass has nothing to do: the console sends Ctrl-C and Ctrl-Break to the command
// as well.
func (l *lifeline) pass(*tree, passedSignal) {}

// Write writes to standard error.
func (k *Keeper) Write(text []byte) (int, error) { return os.Stderr.Write(text) }

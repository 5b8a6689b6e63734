package servers

import (
	"os/exec"
	"runtime"
	"syscall"
)

// starts has the commands to start. The kernel sends the signal of Pdeathsig
// when the thread that started a process ends, so that all are started by one
// thread, which lives as long as this process.
var starts = func() chan<- func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
}()

// startOwned starts a process, whose SysProcAttr is set, that dies with this one.
// It is in a process group of its own: Ctrl-C is for this process, which ends it
// in good order.
func startOwned(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	result := make(chan error)
	starts <- func() { result <- cmd.Start() }
	return <-result
}

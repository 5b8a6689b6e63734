package servers

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// startRequests returns a channel of functions that each start a command. The kernel sends the
// signal of Pdeathsig when the thread that started a process ends. Therefore one thread starts all
// of them, and lives as long as this process. The first call creates it, as most processes of the
// command line start no server.
var startRequests = sync.OnceValue(func() chan<- func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
})

// startOwned starts a process that dies with this one. The SysProcAttr of cmd must be set. The
// process is in a process group of its own: Ctrl-C reaches this process alone, which ends the other
// in good order.
func startOwned(cmd *exec.Cmd) error {
	cmd.SysProcAttr.Pdeathsig, cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	result := make(chan error)
	startRequests() <- func() { result <- cmd.Start() }
	return <-result
}

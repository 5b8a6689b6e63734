//go:build unix

package torture

import (
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// A process is a worker process, and the proxies between it and the store.
type process struct {
	number  int
	proxies []*faultproxy.Proxy // one for each server, if there are any
	stores  []string            // its URLs, by way of the proxies

	gates sync.Mutex  // guards the next two, and the gates of the proxies
	cut   int         // the ways on which it is cut off from all servers
	cutBy map[int]int // those on which it is cut off from one

	mu     sync.Mutex // of the imp that harms it
	cmd    *exec.Cmd
	input  io.WriteCloser
	exited chan struct{}
	err    error // of its end
}

// start starts the process with its orders. It is in a process group of its own:
// Ctrl-C is for the coordinator alone, and should that be killed, the kernel ends
// even a process that is stopped.
func (p *process) start(cmd *exec.Cmd, o orders) error {
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	p.cmd, p.input, p.exited = cmd, input, exited
	go func() {
		p.err = cmd.Wait()
		close(exited)
	}()
	return json.NewEncoder(input).Encode(o)
}

func (p *process) stop() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) } // it may have ended

func (p *process) resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) } // it may have ended

// kill kills the process, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

// finish asks the process to end, and reports whether it did so in time.
func (p *process) finish(ctx context.Context) bool {
	_ = p.input.Close() // it may have ended
	select {
	case <-p.exited:
		return true
	case <-ctx.Done():
		p.kill()
		return false
	}
}

// cutOff holds back what goes to the servers (1), comes from them (2), both (3)
// or nothing (0).
func (p *process) cutOff(ways int) {
	p.gates.Lock()
	defer p.gates.Unlock()
	p.cut = ways
	p.setGates()
}

// cutOffServer does so with one server, counted from 0. A server and a process
// can be cut off at the same time.
func (p *process) cutOffServer(n, ways int) {
	p.gates.Lock()
	defer p.gates.Unlock()
	if p.cutBy == nil {
		p.cutBy = map[int]int{}
	}
	p.cutBy[n] = ways
	p.setGates()
}

func (p *process) setGates() {
	for n, proxy := range p.proxies {
		for bit, way := range map[int]faultproxy.Direction{1: faultproxy.Up, 2: faultproxy.Down} {
			if (p.cut|p.cutBy[n])&bit != 0 {
				proxy.Hold(way)
			} else {
				proxy.Pass(way)
			}
		}
	}
}

func (p *process) loseReply() {
	for _, proxy := range p.proxies {
		proxy.LoseReply(nil)
	}
}

func (p *process) reset() {
	for _, proxy := range p.proxies {
		proxy.Reset()
	}
}

func (p *process) delay(most time.Duration) {
	for _, proxy := range p.proxies {
		proxy.Delay(faultproxy.Up, 0, most)
		proxy.Delay(faultproxy.Down, 0, most)
	}
}

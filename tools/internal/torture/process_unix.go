//go:build unix

package torture

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// A process is a worker process, with the proxies between it and the store.
type process struct {
	number  int
	proxies []*faultproxy.Proxy // one for each server, if there are any
	stores  []string            // the URLs of the store, through the proxies

	blockMu         sync.Mutex  // guards the next two, and the proxies' blocked directions
	blocked         int         // directions blocked to all servers
	blockedByServer map[int]int // directions blocked to one server

	mu      sync.Mutex // held by the nemesis that injects a fault in it
	cmd     *exec.Cmd
	input   io.WriteCloser
	started chan struct{} // closed when it has begun, or ended
	exited  chan struct{}
	err     error // of its exit
}

// start starts the process and sends its configuration. The process is in a process group of its
// own, so Ctrl-C reaches the coordinator alone. If the coordinator is killed, the kernel ends even
// a process that is stopped.
func (p *process) start(cmd *exec.Cmd, config workerConfig) error {
	input, err := cmd.StdinPipe()
	output, outputErr := cmd.StdoutPipe()
	if err := errors.Join(err, outputErr); err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	started, exited := make(chan struct{}), make(chan struct{})
	p.cmd, p.input, p.started, p.exited = cmd, input, started, exited
	go func() {
		_, _ = output.Read(make([]byte, 1)) // It ends at its exit, too.
		close(started)
		p.err = cmd.Wait()
		close(exited)
	}()
	return json.NewEncoder(input).Encode(config)
}

func (p *process) pause() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) } // it may have ended

func (p *process) resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) } // it may have ended

// kill kills the process, and returns when it has exited.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

// stopAndWait closes the input of the process, which ends its work, and reports whether it exited
// in time. When ctx ends it kills the process.
func (p *process) stopAndWait(ctx context.Context) bool {
	_ = p.input.Close() // it may have ended
	select {
	case <-p.exited:
		return true
	case <-ctx.Done():
		p.kill()
		return false
	}
}

// partition blocks the traffic to the servers (1), from them (2), both (3) or none (0).
func (p *process) partition(directions int) {
	p.blockMu.Lock()
	defer p.blockMu.Unlock()
	p.blocked = directions
	p.applyBlocks()
}

// partitionServer does the same for one server, counted from 0. A server and a process can be
// partitioned at the same time.
func (p *process) partitionServer(n, directions int) {
	p.blockMu.Lock()
	defer p.blockMu.Unlock()
	if p.blockedByServer == nil {
		p.blockedByServer = map[int]int{}
	}
	p.blockedByServer[n] = directions
	p.applyBlocks()
}

func (p *process) applyBlocks() {
	for n, proxy := range p.proxies {
		for bit, way := range map[int]faultproxy.Direction{1: faultproxy.Up, 2: faultproxy.Down} {
			if (p.blocked|p.blockedByServer[n])&bit != 0 {
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

func (p *process) delayTraffic(maxDelay time.Duration) {
	for _, proxy := range p.proxies {
		proxy.Delay(faultproxy.Up, 0, maxDelay)
		proxy.Delay(faultproxy.Down, 0, maxDelay)
	}
}

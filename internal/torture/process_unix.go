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
	proxies []*faultproxy.Proxy
	stores  []string // its URLs, by way of the proxies

	mu     sync.Mutex // of the imp that harms it
	cmd    *exec.Cmd
	input  io.WriteCloser
	exited chan struct{}
	err    error // of its end
}

// start starts the process with its orders.
func (p *process) start(cmd *exec.Cmd, o orders) error {
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
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

// hold holds back what goes to the store (1), comes from it (2), or both (3).
func (p *process) hold(ways int) {
	for _, proxy := range p.proxies {
		if ways&1 != 0 {
			proxy.Hold(faultproxy.Up)
		}
		if ways&2 != 0 {
			proxy.Hold(faultproxy.Down)
		}
	}
}

func (p *process) pass() {
	for _, proxy := range p.proxies {
		proxy.Pass(faultproxy.Up)
		proxy.Pass(faultproxy.Down)
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

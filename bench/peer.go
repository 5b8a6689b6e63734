//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/contend"
)

// A peer is a child process that does as it is told.
type peer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// peer starts a process that runs a contender.
func (s *scene) peer(k contend.Kind) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o := s.options()
	order := append([]string{k.Name, o.TTL.String()}, o.Servers...)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(order, "\t"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &peer{cmd: cmd, in: in, out: bufio.NewReader(out)}, cmd.Start()
}

// peers starts n processes for the time of a call.
func (s *scene) peers(k contend.Kind, n int, use func(peers []*peer) error) error {
	var peers []*peer
	var errs []error
	for range n {
		p, err := s.peer(k)
		if err != nil {
			errs = append(errs, err)
			break
		}
		peers = append(peers, p)
	}
	if len(errs) == 0 {
		errs = append(errs, bounded(peers, use))
	}
	for _, p := range peers {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

// bounded ends the processes if they take too long.
func bounded(peers []*peer, use func(peers []*peer) error) error {
	var late atomic.Bool
	end := time.AfterFunc(patience, func() {
		late.Store(true)
		for _, p := range peers {
			_ = p.cmd.Process.Kill() // It may have ended.
		}
	})
	defer end.Stop()
	err := use(peers)
	if late.Load() {
		return errors.Join(errStuck, err)
	}
	return err
}

// tell sends a command and returns the numbers of its answer.
func (p *peer) tell(verb, name string, n int, span time.Duration) ([]float64, error) {
	if _, err := fmt.Fprintln(p.in, verb, name, n, int64(span)); err != nil {
		return nil, err
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("a process has ended: %w", err)
	}
	words := strings.Fields(line)
	if words[0] != "ok" {
		return nil, fmt.Errorf("%s: %s", verb, line)
	}
	numbers := make([]float64, len(words)-1)
	for i, word := range words[1:] {
		if numbers[i], err = strconv.ParseFloat(word, 64); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

// acquire and release return when it happened, by the clock of stage.Now.
func (p *peer) acquire(name string) (time.Duration, error) { return p.moment("acquire", name) }
func (p *peer) release(name string) (time.Duration, error) { return p.moment("release", name) }

func (p *peer) moment(verb, name string) (time.Duration, error) {
	at, err := p.tell(verb, name, 0, 0)
	if err != nil {
		return 0, err
	}
	return time.Duration(at[0]), nil
}

// stop ends the process: it closes its contender at the end of its input. One
// that takes too long is killed; it may hold what it cannot let go of.
func (p *peer) stop() error {
	if p.cmd.ProcessState != nil {
		return nil
	}
	err := p.in.Close()
	kill := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	return errors.Join(err, p.cmd.Wait())
}

// kill ends the process as a crash does.
func (p *peer) kill() error {
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait() // It says that the process was killed.
	return err
}

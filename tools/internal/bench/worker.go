//go:build unix

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"time"

	"github.com/holdfast-go/holdfast/internal/hostclock"
)

// A worker is a process that runs [Serve]. It executes one request at a time. Each time that it
// returns is a reading of the clock of the host, so that the times of two workers can be compared.
type worker struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	requests *json.Encoder
	replies  *json.Decoder
}

// A workerSetup is the first line that a worker reads.
type workerSetup struct {
	Contender string
	Options   Options
}

// A workerRequest is a line that a worker reads after its setup: to acquire the lock, or to release it.
type workerRequest struct{ Release bool }

// A workerReply is a line that a worker writes: one when its Locker is open, and one for each
// request: when it had the lock, or just before it called Release.
type workerReply struct {
	At    time.Duration
	Error string
}

func startWorker(ctx context.Context, command func() *exec.Cmd, setup workerSetup) (*worker, error) {
	cmd := command()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // It may have ended.
	w := &worker{cmd: cmd, in: in, requests: json.NewEncoder(in), replies: json.NewDecoder(out)}
	_, err = w.execute(setup)
	return w, err
}

func (w *worker) execute(request any) (time.Duration, error) {
	var reply workerReply
	if err := w.requests.Encode(request); err != nil {
		return 0, err
	}
	if err := w.replies.Decode(&reply); err != nil {
		return 0, fmt.Errorf("a worker process has ended: %w", err)
	}
	if reply.Error != "" {
		return 0, errors.New("a worker process: " + reply.Error)
	}
	return reply.At, nil
}

// close lets the process close its Locker and exit. It kills a process that takes more than
// 10 s for that.
func (w *worker) close() error {
	defer time.AfterFunc(10*time.Second, func() { _ = w.cmd.Process.Kill() }).Stop()
	return errors.Join(w.in.Close(), w.cmd.Wait())
}

// handOvers passes a lock from one worker to the other and back. It returns for each time how long
// the lock was idle: from the call that releases it to the moment at which the other worker has it.
// A waiter waits for a random time before: long enough to settle, and so that one that polls is met
// at any point between two polls.
func handOvers(holder, waiter *worker, count int) ([]time.Duration, error) {
	if _, err := holder.execute(workerRequest{}); err != nil {
		return nil, err
	}
	const warmUps = 2
	var idle []time.Duration
	for i := range warmUps + count {
		type acquisition struct {
			at  time.Duration
			err error
		}
		acquired := make(chan acquisition, 1)
		go func() {
			at, err := waiter.execute(workerRequest{})
			acquired <- acquisition{at, err}
		}()
		time.Sleep(20*time.Millisecond + rand.N(100*time.Millisecond))
		released, err := holder.execute(workerRequest{Release: true})
		if err != nil {
			return nil, err
		}
		taken := <-acquired
		if taken.err != nil {
			return nil, taken.err
		}
		if i >= warmUps {
			idle = append(idle, taken.at-released)
		}
		holder, waiter = waiter, holder
	}
	_, err := holder.execute(workerRequest{Release: true})
	return idle, err
}

// Serve is the work of a worker process: it opens the contender that it reads the name of, and
// executes the requests that follow until in ends.
func Serve(in io.Reader, out io.Writer) error {
	ctx := context.Background()
	requests, replies := json.NewDecoder(in), json.NewEncoder(out)
	var setup workerSetup
	if err := requests.Decode(&setup); err != nil {
		return fmt.Errorf("read the setup: %w", err)
	}
	contender, ok := find(setup.Contender)
	if !ok {
		return fmt.Errorf("no contender %q", setup.Contender)
	}
	locker, err := contender.Open(setup.Options)
	if err != nil {
		return err
	}
	err = replies.Encode(workerReply{})
	var held Held
	for err == nil {
		var request workerRequest
		if requests.Decode(&request) != nil {
			return locker.Close()
		}
		reply := workerReply{At: hostclock.Now()}
		if request.Release {
			err = held.Release(ctx)
		} else {
			held, err = locker.Acquire(ctx, "job")
			reply.At = hostclock.Now()
		}
		if err != nil {
			reply.Error = err.Error()
		}
		err = replies.Encode(reply)
	}
	return errors.Join(err, locker.Close())
}

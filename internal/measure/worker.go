//go:build unix

package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/hostclock"
)

// A Worker is a process that runs [Serve]. It executes one request at a time. Each time that a
// worker returns is a reading of the clock of the host, so that the times of several workers
// can be compared.
type Worker struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	requests *json.Encoder
	replies  *json.Decoder
}

// A workerRequest is a line that a worker reads, after the first, which is its setup.
type workerRequest struct {
	Method     string
	Name       string
	Goroutines int
	Span       time.Duration
}

// A workerReply is a line that a worker writes: one when its Locker is open, and one for each
// request.
type workerReply struct {
	At    time.Duration
	Waits [][]time.Duration
	Usage *Usage `json:",omitempty"`
	Error string
}

// WithWorkers starts n processes, calls use with them, and ends them. Each process runs Serve
// with this setup. The end of ctx kills them: use then returns the error of a request.
func WithWorkers(ctx context.Context, n int, command func() *exec.Cmd, setup []string,
	use func(workers []*Worker) error,
) error {
	var workers []*Worker
	var errs []error
	for range n {
		w, err := startWorker(command(), setup)
		if err != nil {
			errs = append(errs, err)
			break
		}
		workers = append(workers, w)
	}
	stop := context.AfterFunc(ctx, func() {
		for _, w := range workers {
			_ = w.cmd.Process.Kill() // It may have ended.
		}
	})
	defer stop()
	for _, w := range workers {
		if _, err := w.receiveReply(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, use(workers))
	}
	for _, w := range workers {
		errs = append(errs, w.close())
	}
	return errors.Join(errs...)
}

func startWorker(cmd *exec.Cmd, setup []string) (*Worker, error) {
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
	w := &Worker{cmd: cmd, in: in, requests: json.NewEncoder(in), replies: json.NewDecoder(out)}
	_ = w.requests.Encode(setup) // If it fails, there is no reply.
	return w, nil
}

func (w *Worker) receiveReply() (workerReply, error) {
	var reply workerReply
	if err := w.replies.Decode(&reply); err != nil {
		return reply, fmt.Errorf("a worker process has ended: %w", err)
	}
	if reply.Error != "" {
		return reply, fmt.Errorf("a worker process: %s", reply.Error)
	}
	return reply, nil
}

func (w *Worker) execute(request workerRequest) (workerReply, error) {
	if err := w.requests.Encode(request); err != nil {
		return workerReply{}, err
	}
	return w.receiveReply()
}

// Acquire acquires a lock and returns the time at which the worker has it.
func (w *Worker) Acquire(name string) (time.Duration, error) {
	reply, err := w.execute(workerRequest{Method: "acquire", Name: name})
	return reply.At, err
}

// Release releases a lock and returns the time just before the call.
func (w *Worker) Release(name string) (time.Duration, error) {
	reply, err := w.execute(workerRequest{Method: "release", Name: name})
	return reply.At, err
}

// StartWaiters starts goroutines that acquire the lock, and release it at once.
func (w *Worker) StartWaiters(name string, goroutines int) error {
	_, err := w.execute(workerRequest{Method: "start waiters", Name: name, Goroutines: goroutines})
	return err
}

// AwaitWaiters blocks until all waiters have had the lock, and returns the time at which the
// last one acquired it. If a waiter has failed, AwaitWaiters returns its error.
func (w *Worker) AwaitWaiters() (time.Duration, error) {
	reply, err := w.execute(workerRequest{Method: "await waiters"})
	return reply.At, err
}

// Pairs calls [Pairs] with one name in the worker, and returns the times of the acquisitions of
// each goroutine.
func (w *Worker) Pairs(name string, goroutines int, span time.Duration) ([][]time.Duration, error) {
	reply, err := w.execute(workerRequest{"pairs", name, goroutines, span})
	return reply.Waits, err
}

// usage returns what the worker has used since its start.
func (w *Worker) usage() (Usage, error) {
	reply, err := w.execute(workerRequest{Method: "usage"})
	if err != nil {
		return Usage{}, err
	}
	return *reply.Usage, nil
}

// PID returns the number of the process.
func (w *Worker) PID() int { return w.cmd.Process.Pid }

// Kill kills the process, as a crash does.
func (w *Worker) Kill() error {
	err := w.cmd.Process.Kill()
	_ = w.cmd.Wait() // Its error is that the process was killed.
	return err
}

// close lets the process close its Locker and exit. It kills a process that takes more than
// 10 s for that.
func (w *Worker) close() error {
	if w.cmd.ProcessState != nil {
		return nil
	}
	defer time.AfterFunc(10*time.Second, func() { _ = w.cmd.Process.Kill() }).Stop()
	return errors.Join(w.in.Close(), w.cmd.Wait())
}

// AllPairs calls Pairs in all workers at once. It returns the times of the acquisitions of each
// goroutine, worker by worker.
func AllPairs(workers []*Worker, name string, goroutines int, span time.Duration) ([][]time.Duration, error) {
	waits := make([][]time.Duration, len(workers)*goroutines)
	errs := make([]error, len(workers))
	var group sync.WaitGroup
	for i, w := range workers {
		group.Go(func() {
			var own [][]time.Duration
			own, errs[i] = w.Pairs(name, goroutines, span)
			copy(waits[i*goroutines:], own)
		})
	}
	group.Wait()
	return waits, errors.Join(errs...)
}

// Serve is the work of a worker process: it opens a Locker with the setup that it reads, and
// executes the requests that follow. It returns when in ends, which interrupts a request.
func Serve(in io.Reader, out io.Writer, open func(setup []string) (Locker, error)) error {
	requests, replies := json.NewDecoder(in), json.NewEncoder(out)
	var setup []string
	if err := requests.Decode(&setup); err != nil {
		return fmt.Errorf("read the setup: %w", err)
	}
	locker, err := open(setup)
	if err != nil {
		return err
	}
	if err := replies.Encode(workerReply{}); err != nil {
		return errors.Join(err, locker.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	received := make(chan workerRequest)
	go func() {
		defer cancel()
		defer close(received)
		for {
			var request workerRequest
			if requests.Decode(&request) != nil {
				return
			}
			received <- request
		}
	}()
	s := &workerServer{ctx: ctx, locker: locker, held: map[string]Held{}, results: make(chan acquisition)}
	for request := range received {
		reply, err := s.execute(request)
		if err != nil {
			reply.Error = fmt.Sprintf("%s %s: %v", request.Method, request.Name, err)
		}
		_ = replies.Encode(reply) // If it fails, in ends, too.
	}
	return locker.Close()
}

// A workerServer is the state of a worker process.
type workerServer struct {
	ctx     context.Context
	locker  Locker
	held    map[string]Held
	waiters int              // that were started, and not awaited yet
	results chan acquisition // of the waiters
}

func (s *workerServer) execute(r workerRequest) (reply workerReply, err error) {
	switch r.Method {
	case "acquire":
		s.held[r.Name], err = s.locker.Acquire(s.ctx, r.Name)
		reply.At = hostclock.Now()
	case "release":
		reply.At = hostclock.Now()
		err = s.held[r.Name].Release(s.ctx)
	case "start waiters":
		for range r.Goroutines {
			s.waiters++
			go func() { s.results <- s.acquireAndRelease(r.Name) }()
		}
	case "await waiters":
		for ; s.waiters > 0; s.waiters-- {
			result := <-s.results
			reply.At = max(reply.At, result.at)
			if err == nil {
				err = result.err
			}
		}
	case "usage":
		used := ReadUsage()
		reply.Usage = &used
	case "pairs":
		reply.Waits = make([][]time.Duration, r.Goroutines)
		_, err = Pairs(s.ctx, s.locker, r.Goroutines, SameName(r.Name), r.Span, func(i int, acquire, _ time.Duration) {
			reply.Waits[i] = append(reply.Waits[i], acquire)
		})
	default:
		err = errors.New("unknown method")
	}
	return reply, err
}

func (s *workerServer) acquireAndRelease(name string) acquisition {
	held, err := s.locker.Acquire(s.ctx, name)
	at := hostclock.Now()
	if err == nil {
		err = held.Release(s.ctx)
	}
	return acquisition{at, err}
}

//go:build unix

package torture

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A recordedStore logs the answers of a store that is Fair: see Answers. An attempt that takes the
// name or not is logged if it took it, or may have.
type recordedStore struct {
	driver.Store
	log  *eventLog
	proc int

	mu     sync.Mutex
	places map[string]bool // of the owners that were Queued
}

func (s *recordedStore) record(e Event) {
	s.mu.Lock()
	if e.Queued {
		s.places[e.Owner] = true
	} else if e.Err == "" {
		delete(s.places, e.Owner)
	}
	s.mu.Unlock()
	e.Step, e.Proc, e.At = Answers, s.proc, now()
	s.log.appendEvent(e)
}

// Acquire implements [driver.Store].
func (s *recordedStore) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.AcquireResult, error) {
	e := Event{Name: req.Name, Owner: req.Owner, Sent: now(), Limit: req.Limit}
	res, err := s.Store.Acquire(ctx, req)
	switch {
	case err != nil:
		e.Err = err.Error()
	case res.Granted:
		e.Token = res.Token
	default:
		e.Queued, e.First = res.Queued, res.First
	}
	if err != nil || res.Granted || req.Queue > 0 {
		s.record(e)
	}
	return res, err
}

// Renew implements [driver.Store].
func (s *recordedStore) Renew(ctx context.Context, reqs []driver.RenewRequest) ([]driver.RenewOutcome, error) {
	sent := now()
	outcomes, err := s.Store.Renew(ctx, reqs)
	for i, outcome := range outcomes {
		s.mu.Lock()
		waiting := s.places[reqs[i].Owner]
		s.mu.Unlock()
		if waiting && (outcome == driver.RenewQueued || outcome == driver.RenewLost) {
			s.record(Event{Name: reqs[i].Name, Owner: reqs[i].Owner, Sent: sent, Queued: outcome == driver.RenewQueued})
		}
	}
	return outcomes, err
}

// Release implements [driver.Store].
func (s *recordedStore) Release(ctx context.Context, req driver.ReleaseRequest) (bool, error) {
	s.mu.Lock()
	waiting := s.places[req.Owner]
	s.mu.Unlock()
	if waiting {
		s.record(Event{Name: req.Name, Owner: req.Owner, Sent: now()})
	}
	return s.Store.Release(ctx, req)
}

// Notify implements [driver.Notifier].
func (s *recordedStore) Notify(f func(driver.Notice)) (stop func()) {
	return s.Store.(driver.Notifier).Notify(func(n driver.Notice) {
		if n.Kind == driver.Granted {
			s.record(Event{Name: n.Name, Owner: n.Owner, Token: n.Token})
		} else if n.Name == "" {
			s.log.appendEvent(Event{At: now(), Step: Reconnects, Proc: s.proc})
		}
		f(n)
	})
}

// fullLine is how many processes in a queue are a full one.
const fullLine = 3

// awaitLine returns the processes in the longest queue, the first one first. It waits until there
// are n, for a TTL at most.
func (nem *nemesis) awaitLine(n int) []int {
	for end := now() + nem.options.TTL; ; {
		line := nem.longestLine()
		if len(line) >= n || now() >= end || nem.ctx.Err() != nil {
			return line
		}
		nem.sleep(50 * time.Millisecond)
	}
}

// logTail is how much of the end of a log shows what its process waits for.
const logTail = 128 << 10

// longestLine returns the processes that wait for the name for which most of them wait, in the
// order in which the store has answered that they have a place, or in which they began to wait if
// the store keeps no places.
func (r *tortureRun) longestLine() []int {
	lines := map[string][]Event{}
	for _, p := range r.processes {
		for name, e := range readWaits(r.filePath(workerLogName(p.number)), r.fair) {
			lines[name] = append(lines[name], e)
		}
	}
	var longest []int
	for _, line := range lines {
		if len(line) <= len(longest) {
			continue
		}
		slices.SortFunc(line, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
		longest = longest[:0]
		for _, e := range line {
			longest = append(longest, e.Proc)
		}
	}
	return longest
}

// readWaits returns, for each name, the event with which the process began to wait that waits the
// longest, from the end of the log of a process.
func readWaits(path string, fair bool) map[string]Event {
	file, err := os.Open(path)
	if err != nil {
		return nil // it has not begun
	}
	defer file.Close()
	if at, err := file.Seek(-logTail, io.SeekEnd); err != nil || at == 0 {
		_, _ = file.Seek(0, io.SeekStart) // it is shorter
	}
	type waiter struct {
		owner  string
		worker int
	}
	waits := map[waiter]Event{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLineLen)
	for lines.Scan() {
		var e Event
		if !bytes.HasSuffix(lines.Bytes(), []byte("}")) || json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // the first or the last line may be a part of one
		}
		id := waiter{e.Owner, e.Worker}
		_, known := waits[id]
		switch {
		case e.Step == Begins:
			clear(waits)
		case fair && e.Step == Answers && e.Queued, !fair && e.Step == Asks && e.Waits:
			if !known || !fair {
				waits[id] = e
			}
		case fair && e.Step == Answers && e.Err == "", !fair && (e.Step == Got || e.Step == Refused):
			delete(waits, id)
		}
	}
	first := map[string]Event{}
	for _, e := range waits {
		if other, ok := first[e.Name]; !ok || e.At < other.At {
			first[e.Name] = e
		}
	}
	return first
}

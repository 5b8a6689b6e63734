package filestore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// TestExclusion lets many processes add one to numbers in files, each under its
// lock, while some of them sweep without pause and others are killed.
func TestExclusion(t *testing.T) {
	const workers, turns, names = 6, 60, 3
	dir, out := t.TempDir(), t.TempDir()
	for i := range names {
		writeFile(t, filepath.Join(out, fmt.Sprint("number", i)), "0")
	}
	var children []*child
	for i := range workers {
		does := []string{"sweep", "work"}[i%2]
		children = append(children, start(t, command("count", dir, out, fmt.Sprint(turns), fmt.Sprint(names), does)))
	}
	for range 20 {
		c := start(t, command("hold", dir, "name0", "1h"))
		_, _ = c.lines.ReadString('\n') // It may have found the name taken.
		c.kill()
	}
	for _, c := range children {
		c.finish()
	}
	for i := range names {
		checkCount(t, out, i, workers*turns)
	}
}

// checkCount checks the number and the log of tokens that go with a name.
func checkCount(t *testing.T, out string, i, want int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(out, fmt.Sprint("number", i)))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(data); got != fmt.Sprint(want) {
		t.Errorf("number %d is %s, want %d", i, got, want)
	}
	log, err := os.ReadFile(filepath.Join(out, fmt.Sprint("tokens", i)))
	if err != nil {
		t.Fatal(err)
	}
	last := int64(0)
	for line := range strings.Lines(string(log)) {
		token, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil || token <= last {
			t.Fatalf("the token %q comes after %d: %v", line, last, err)
		}
		last = token
	}
}

// roleCount adds one to each number as often as it is told.
func roleCount(args []string) error {
	dir, out := args[0], args[1]
	turns, _ := strconv.Atoi(args[2])
	names, _ := strconv.Atoi(args[3])
	s, err := newEngine(dir, nil)
	if err != nil {
		return err
	}
	end := func() {}
	if args[4] == "sweep" {
		end = sweepOnAndOn(s)
	}
	for turn := range turns * names {
		if err := count(s, out, turn%names); err != nil {
			return err
		}
	}
	end()
	return s.Close()
}

// sweepOnAndOn sweeps until end is called.
func sweepOnAndOn(s *engine) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		for ctx.Err() == nil {
			s.sweepIdle(ctx, 0)
			_ = retry.Sleep(ctx, time.Millisecond)
		}
	}()
	return func() {
		cancel()
		<-swept
	}
}

// count adds one to a number under its lock.
func count(s *engine, out string, i int) error {
	req := request(fmt.Sprint("name", i), time.Hour)
	token, err := takeTurn(s, req)
	if err != nil {
		return err
	}
	path := filepath.Join(out, fmt.Sprint("number", i))
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(data))
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(n+1)), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(out, fmt.Sprint("tokens", i)), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if _, err := fmt.Fprintln(log, token); err != nil {
		return err
	}
	ok, err := s.Release(context.Background(), olddriver.ReleaseRequest{Name: req.Name, Owner: req.Owner})
	if err != nil || !ok {
		return fmt.Errorf("release: %v, %w", ok, err)
	}
	return nil
}

// takeTurn waits until it has the lock: by notices where there are any, and otherwise by trying
// from time to time.
func takeTurn(s *engine, req olddriver.AcquireRequest) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	asks := make(chan struct{}, 1)
	defer s.Notify(func(n olddriver.Notice) {
		if n.Name == req.Name {
			select {
			case asks <- struct{}{}:
			default:
			}
		}
	})()
	req.Queue = 10 * time.Second
	for {
		res, err := s.Acquire(ctx, req)
		if err != nil || res.Granted {
			return res.Token, err
		}
		interval := 20 * time.Millisecond
		if res.Queued {
			interval = time.Second // A notice may be missed, and costs no more then.
		}
		select {
		case <-asks:
		case <-time.After(interval):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

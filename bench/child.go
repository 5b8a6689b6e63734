//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/contend"
	"github.com/holdfast-go/holdfast/bench/internal/stage"
)

// childEnv makes this program one of the processes that a scenario runs: it has
// the name of the contender, its TTL and its servers, separated by tabs.
const childEnv = "HOLDFAST_BENCH_CHILD"

// child obeys the commands on its input, a line each, and answers each with a
// line: "ok" and numbers, or "error" and a text. See peer for the other end.
func child(order string, in io.Reader, out io.Writer) error {
	words := strings.Split(order, "\t")
	ttl, err := time.ParseDuration(words[1])
	if err != nil {
		return err
	}
	kind, ok := contend.Find(words[0])
	if !ok {
		return fmt.Errorf("no contender %q", words[0])
	}
	c, err := kind.Open(contend.Options{TTL: ttl, Servers: words[2:]})
	if err != nil {
		return err
	}
	s := &servant{c: c, held: map[string]contend.Held{}}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := answer(out, s, lines.Text()); err != nil {
			return err
		}
	}
	return c.Close()
}

func answer(out io.Writer, s *servant, line string) error {
	reply, err := s.obey(context.Background(), line)
	if err != nil {
		_, err = fmt.Fprintf(out, "error %q\n", err)
		return err
	}
	_, err = fmt.Fprintln(out, "ok", reply)
	return err
}

// A servant is the contender of a child process, and what it holds.
type servant struct {
	c    contend.Contender
	held map[string]contend.Held

	waiters sync.WaitGroup
	last    atomic.Int64 // when one of them took the lock
}

func (s *servant) obey(ctx context.Context, line string) (string, error) {
	var verb, name string
	var n int
	var span time.Duration
	if _, err := fmt.Sscan(line, &verb, &name, &n, (*int64)(&span)); err != nil {
		return "", fmt.Errorf("command %q: %w", line, err)
	}
	switch verb {
	case "acquire": // answers when it had the lock
		return s.acquire(ctx, name)
	case "release": // answers when it began to release
		return s.release(ctx, name)
	case "wait": // leaves n goroutines waiting for the lock
		for range n {
			s.waiters.Go(func() { s.pass(ctx, name) })
		}
		return "", nil
	case "rest": // answers when the last of them had it
		s.waiters.Wait()
		return fmt.Sprint(s.last.Load()), nil
	case "load": // answers how often n goroutines have had the lock
		counts, err := load(ctx, s.c, n, func(int) string { return name }, span)
		return strings.Trim(fmt.Sprint(counts), "[]"), err
	}
	return "", errors.New("unknown command " + verb)
}

func (s *servant) acquire(ctx context.Context, name string) (string, error) {
	held, err := s.c.Acquire(ctx, name)
	if err != nil {
		return "", err
	}
	s.held[name] = held
	return fmt.Sprint(int64(stage.Now())), nil
}

func (s *servant) release(ctx context.Context, name string) (string, error) {
	began := stage.Now()
	return fmt.Sprint(int64(began)), s.held[name].Release(ctx)
}

// pass takes the lock when its turn has come, and lets it go.
func (s *servant) pass(ctx context.Context, name string) {
	held, err := s.c.Acquire(ctx, name)
	if err == nil {
		s.last.Store(int64(stage.Now())) // They have it one after the other.
		err = held.Release(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a waiter:", err)
	}
}

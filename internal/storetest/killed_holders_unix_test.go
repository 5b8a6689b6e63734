//go:build unix

package storetest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// The test binary is also each process that takes slots, with these arguments in the environment.
const slotsVariable = "STORETEST_SLOTS"

func TestMain(m *testing.M) {
	args, ok := os.LookupEnv(slotsVariable)
	if !ok {
		os.Exit(m.Run())
	}
	if err := takeSlots(strings.Split(args, " ")); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// All slots of processes that are killed come back: one that waits for all of them gets the lock.
// There are TEST_HOLDERS slots in use, 80 if it is not set, by four processes.
func TestKilledHolders(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("TEST_HOLDERS"))
	if err != nil {
		count = 80
	}
	const processes = 4
	storetest.Each(t, func(t *testing.T, s *storetest.Store) {
		locks := s.Open(t, nil)
		if !locks.Guarantees().Limits || s.Name == "memory" { // processes do not share it
			return
		}
		limit, ttl := count/processes*processes, 4*time.Second
		atOnce := locks.Guarantees().Crash == driver.FateFreed
		switch { // Many are acquired one after the other, and renewed meanwhile.
		case atOnce:
			ttl = time.Hour
		case s.Name == "postgres":
			ttl += time.Duration(count/1000) * 15 * time.Second
		}
		began := time.Now()
		holders := make([]*exec.Cmd, processes)
		var held sync.WaitGroup
		for i := range holders {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %s", slotsVariable, s.URL(), limit, limit/processes, ttl))
			cmd.Stderr = os.Stderr
			in, err := cmd.StdinPipe()
			out, outErr := cmd.StdoutPipe()
			if err := errors.Join(err, outErr, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() }) // if it was not killed
			held.Go(func() {
				if line, err := bufio.NewReader(out).ReadString('\n'); line != "all\n" {
					t.Errorf("a process says %q, %v", line, err)
				}
			})
			holders[i] = cmd
		}
		held.Wait()
		t.Logf("%d slots in %v", limit, time.Since(began))
		if lock, err := locks.TryAcquire(t.Context(), "slots", &holdfast.Options{Limit: limit}); err == nil {
			t.Errorf("%v is granted beside %d others", lock, limit)
		}
		all := make(chan error, 1)
		go func() {
			_, err := locks.Acquire(t.Context(), "slots", &holdfast.Options{Limit: 1})
			all <- err
		}()
		killed := time.Now()
		for _, cmd := range holders {
			_ = cmd.Process.Kill() // It may have failed.
		}
		bound := 10 * time.Second
		if !atOnce {
			bound += ttl
		}
		select {
		case err := <-all:
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("all of them are back after %v", time.Since(killed))
		case <-time.After(bound):
			holds, err := locks.Lookup(t.Context(), "slots")
			t.Fatalf("%v after the death of all holders %d are left (%v)", bound, len(holds), err)
		}
	})
}

// takeSlots takes a number of slots, several at a time, and renews them until it is killed, or the
// test has ended.
func takeSlots(args []string) error {
	locks, err := holdfast.Open(context.Background(), args[0], nil)
	if err != nil {
		return err
	}
	limit, _ := strconv.Atoi(args[1])
	count, _ := strconv.Atoi(args[2])
	ttl, _ := time.ParseDuration(args[3])
	failed := make(chan error, count)
	var left atomic.Int64
	left.Store(int64(count))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := locks.Acquire(context.Background(), "slots", &holdfast.Options{Limit: limit, TTL: ttl}); err != nil {
					failed <- err
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	fmt.Println("all")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

//go:build unix

package storetest_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

func TestMain(m *testing.M) {
	storetest.Main(m, map[string]storetest.Role{"slots": roleSlots})
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
		var holders []*storetest.Process
		var held sync.WaitGroup
		for range processes {
			held.Add(1)
			holders = append(holders, storetest.Start(t, func(line string) {
				if line == "all" {
					held.Done()
				} else {
					t.Error(line)
				}
			}, "slots", s.URL(), strconv.Itoa(limit), strconv.Itoa(limit/processes), ttl.String()))
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
		for _, p := range holders {
			p.Kill()
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

// roleSlots takes a number of slots, several at a time, and renews them until it is killed.
func roleSlots(args []string) error {
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
	storetest.UntilEOF()
	return nil
}

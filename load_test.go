package holdfast_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filestore"
	"github.com/holdfast-go/holdfast/memstore"
)

// localStores are the stores that need no server.
var localStores = map[string]func(t testing.TB) driver.Store{
	"memory": func(testing.TB) driver.Store { return memstore.New() },
	"file": func(t testing.TB) driver.Store {
		store, err := filestore.New(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return store
	},
}

const crowd = 512

func TestCrowdOnManyNames(t *testing.T) {
	for kind, store := range localStores {
		t.Run(kind, func(t *testing.T) {
			// A machine that is busy with other things, too, can take long.
			c := open(t, store(t), &holdfast.Config{RequestTimeout: 20 * time.Second})
			var group sync.WaitGroup
			var inside [crowd]atomic.Int32
			for i := range crowd {
				group.Go(func() {
					for j := range 20 {
						n := (i + j*7) % crowd
						lock := acquire(t, c, fmt.Sprint("name ", n), nil)
						if inside[n].Add(1) != 1 {
							t.Errorf("two inside of %d", n)
						}
						runtime.Gosched()
						inside[n].Add(-1)
						release(t, lock)
					}
				})
			}
			group.Wait()
		})
	}
}

func TestCrowdOnOneName(t *testing.T) {
	for kind, store := range localStores {
		t.Run(kind, func(t *testing.T) {
			var waiting atomic.Int32
			queued := make(chan struct{})
			c := open(t, store(t), &holdfast.Config{Hooks: holdfast.OnEvent(holdfast.EventWaiting, func(holdfast.Event) {
				if waiting.Add(1) == crowd {
					close(queued)
				}
			})})
			first := acquire(t, c, "a", nil)
			var group sync.WaitGroup
			served := make([]int, crowd)
			var last int64
			left := crowd * 10
			for i := range crowd {
				group.Go(func() {
					for {
						lock := acquire(t, c, "a", nil)
						if lock.Token() <= last {
							t.Errorf("token %d after %d", lock.Token(), last)
						}
						last = lock.Token() // no race: the lock guards it
						over := left == 0
						if !over {
							left--
							served[i]++
						}
						release(t, lock)
						if over {
							return
						}
					}
				})
			}
			<-queued
			release(t, first)
			group.Wait()
			if most, least := slices.Max(served), slices.Min(served); most > 2*least {
				t.Errorf("the most served goroutine had %d turns, the least %d", most, least)
			}
		})
	}
}

// Two clients share one name: neither a lost wake-up nor starvation.
func TestCrowdsOfSeveralClients(t *testing.T) {
	for kind, store := range localStores {
		t.Run(kind, func(t *testing.T) {
			s := store(t)
			var group sync.WaitGroup
			inside := 0
			for range 4 {
				c := open(t, s, nil)
				for range 16 {
					group.Go(func() {
						for range 20 {
							lock := acquire(t, c, "a", nil)
							inside++
							if inside != 1 {
								t.Errorf("%d inside", inside)
							}
							inside--
							release(t, lock)
						}
					})
				}
			}
			group.Wait()
		})
	}
}

func TestHundredThousandLocks(t *testing.T) {
	const count = 100_000
	virtual(t, func(t *testing.T, ctx context.Context) {
		var renewals, late atomic.Int64
		before := heap()
		c := open(t, memstore.New(), &holdfast.Config{Hooks: holdfast.OnEvent(holdfast.EventRenewed, func(e holdfast.Event) {
			renewals.Add(1)
			if e.Left < 19*time.Second { // of 29.698 s, renewed after at most 10
				late.Add(1)
			}
		})})
		locks := make([]*holdfast.Lock, count)
		for i := range locks {
			locks[i] = acquire(t, c, fmt.Sprintf("lock-%06d", i), nil)
			if i%100 == 0 {
				time.Sleep(10 * ms)
			}
		}
		size := (heap() - before) / count
		time.Sleep(time.Minute)
		synctest.Wait()
		goroutines := runtime.NumGoroutine()
		for _, lock := range locks {
			if err := lock.Err(); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%d bytes for each lock, %d goroutines, %d renewals", size, goroutines, renewals.Load())
		if size > 1024 {
			t.Errorf("%d bytes for each lock", size)
		}
		if goroutines > 100 {
			t.Errorf("%d goroutines", goroutines)
		}
		if n := renewals.Load(); n < 5*count || late.Load() > 0 {
			t.Errorf("%d renewals, %d of them late", n, late.Load())
		}
	})
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

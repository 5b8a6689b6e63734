package holdfast_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/filestore"
	"github.com/holdfast-go/holdfast/internal/faultstore"
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

// Hundreds of goroutines, of one Client and of several, take one name or many: the holds of a name
// exclude each other, under tokens that rise, and nobody is forgotten. Goroutines of one Client
// that wait for a name pass it on, most often without a request.
func TestCrowds(t *testing.T) {
	const crowd, rounds = 128, 20
	for kind, local := range localStores {
		s := local(t)
		for _, names := range []int{1, crowd} {
			for _, clients := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s, %d names, %d clients", kind, names, clients), func(t *testing.T) {
					var group sync.WaitGroup
					var held [crowd]atomic.Bool
					var tokens [crowd]int64 // Each is guarded by its lock.
					var c *holdfast.Client
					store := faultstore.Wrap(s)
					for i := range crowd {
						if i < clients {
							// A machine that is busy with other things, too, can take long.
							c = open(t, store, &holdfast.Config{RequestTimeout: 20 * time.Second, Prefix: t.Name()})
						}
						c := c
						group.Go(func() {
							for j := range rounds {
								n := (i + j*7) % names
								lock := acquire(t, c, fmt.Sprint("name ", n), nil)
								if held[n].Swap(true) || lock.Token() <= tokens[n] {
									t.Errorf("name %d with token %d after %d, or held by two", n, lock.Token(), tokens[n])
								}
								tokens[n] = lock.Token()
								runtime.Gosched()
								held[n].Store(false)
								release(t, lock)
							}
						})
					}
					group.Wait()
					if n := store.Calls(faultstore.Acquire); names == 1 && s.Guarantees().Queue && n > crowd*rounds/2 {
						t.Errorf("%d requests for %d holds", n, crowd*rounds)
					}
				})
			}
		}
	}
}

package redisstore

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// A watcher signals waiters after releases. It makes the server track the locks that are waited
// for, and no others (CLIENT TRACKING): the server then sends a message when any client changes one
// of them. There is one connection to each server that has such locks, for as long as the Store is
// open.
type watcher struct {
	s       *Store
	ctx     context.Context // ends at close
	stop    context.CancelFunc
	running sync.WaitGroup

	mu         sync.Mutex
	locks      map[string]*watchedKey
	servers    map[string]*trackingServer // by address
	failures   int                        // in a row, of connections
	polling    bool                       // of the locks that are not tracked
	contention contentionBackoff
}

// A watch is one call of Watch.
type watch struct {
	signal chan struct{}
	ready  chan error // room for one; gets the outcome of Watch
	active bool       // ready has received it
}

// canTrack reports whether the store can reach the client's servers.
func canTrack(client redis.UniversalClient) bool {
	switch client.(type) {
	case *redis.Client, *redis.ClusterClient:
		return true
	}
	return false
}

func (w *watcher) init(s *Store) {
	w.s = s
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.locks = map[string]*watchedKey{}
	w.servers = map[string]*trackingServer{}
	w.contention.seed = maphash.MakeSeed()
}

// Watch implements [driver.Watcher]. A wake-up costs the store one GET, and so does every renewal
// of the lock by its holder; only the first renewal of a hold signals. A server that is older than
// 6.0, or does not allow CLIENT TRACKING, is reported as [driver.ErrUnsupported].
func (s *Store) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := s.checkUsable(ctx); err != nil {
		return nil, err
	}
	if !s.guarantees.Push {
		return nil, driver.ErrUnsupported
	}
	w, key := &s.watcher, s.lockKey(name)
	wt := &watch{signal: make(chan struct{}, 1), ready: make(chan error, 1)}
	if err := w.addWatch(key, wt); err != nil {
		return nil, err
	}
	select {
	case err := <-wt.ready:
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { w.removeWatch(key, wt) })
		return wt.signal, nil
	case <-ctx.Done():
		w.removeWatch(key, wt)
		return nil, ctx.Err()
	case <-w.ctx.Done():
		return nil, driver.ErrClosed
	}
}

// addWatch registers a watch and makes the server track the lock.
func (w *watcher) addWatch(key string, wt *watch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return driver.ErrClosed
	}
	t := w.locks[key]
	if t == nil {
		t = &watchedKey{key: key}
		w.locks[key] = t
		w.running.Go(func() { w.resubscribe(0, key) })
	}
	t.watches = append(t.watches, wt)
	if t.armed {
		wt.setReady(nil)
	}
	return nil
}

func (w *watcher) removeWatch(key string, wt *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.locks[key]
	if t == nil {
		return
	}
	t.watches = slices.DeleteFunc(t.watches, func(other *watch) bool { return other == wt })
	if len(t.watches) == 0 {
		t.stopTimers()
		delete(w.locks, key)
		if t.server != nil {
			delete(t.server.locks, key)
		}
	}
}

// close ends all watches.
func (w *watcher) close() {
	w.mu.Lock() // A goroutine that holds it may be about to start another.
	w.stop()
	w.mu.Unlock()
	w.running.Wait()
}

// setReady ends the wait of Watch.
func (wt *watch) setReady(err error) {
	wt.active = err == nil
	wt.ready <- err
}

func (wt *watch) wake() {
	select {
	case wt.signal <- struct{}{}:
	default:
	}
}

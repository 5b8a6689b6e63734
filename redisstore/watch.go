package redisstore

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// A watcher tells waiters of releases. It has the server track the locks that
// are waited for, and no others (CLIENT TRACKING): the server then sends a word
// when one of them changes, whoever changes it. There is one connection to each
// server that has such locks, for as long as the Store is open.
type watcher struct {
	s       *Store
	ctx     context.Context // ends at close
	stop    context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	locks     map[string]*tracked
	servers   map[string]*tracker // by address
	failures  int                 // in a row, of connections
	reminding bool                // of the locks that are not tracked
	crowds    crowds
}

// A watch is one call of Watch.
type watch struct {
	signal  chan struct{}
	ready   chan error // room for one; gets the outcome of Watch
	inForce bool       // ready has had it
}

// canTrack reports whether the store knows how to reach the client's servers.
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
	w.locks = map[string]*tracked{}
	w.servers = map[string]*tracker{}
	w.crowds.seed = maphash.MakeSeed()
}

// Watch implements [driver.Watcher]. A wake-up costs the store one GET, and
// so does every renewal of the lock by its holder; only the first renewal of a
// hold signals. A server that is older than 6.0, or does not allow CLIENT
// TRACKING, is reported as [driver.ErrUnsupported].
func (s *Store) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if !s.can.Push {
		return nil, driver.ErrUnsupported
	}
	w, key := &s.watcher, s.lockKey(name)
	one := &watch{signal: make(chan struct{}, 1), ready: make(chan error, 1)}
	if err := w.add(key, one); err != nil {
		return nil, err
	}
	select {
	case err := <-one.ready:
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { w.remove(key, one) })
		return one.signal, nil
	case <-ctx.Done():
		w.remove(key, one)
		return nil, ctx.Err()
	case <-w.ctx.Done():
		return nil, driver.ErrClosed
	}
}

// add registers a watch and sees to it that the lock is tracked.
func (w *watcher) add(key string, one *watch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return driver.ErrClosed
	}
	t := w.locks[key]
	if t == nil {
		t = &tracked{key: key}
		w.locks[key] = t
		w.running.Go(func() { w.settle(0, key) })
	}
	t.watches = append(t.watches, one)
	if t.armed {
		one.become(nil)
	}
	return nil
}

func (w *watcher) remove(key string, one *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.locks[key]
	if t == nil {
		return
	}
	t.watches = slices.DeleteFunc(t.watches, func(other *watch) bool { return other == one })
	if len(t.watches) == 0 {
		t.rest()
		delete(w.locks, key)
		if t.server != nil {
			delete(t.server.locks, key)
		}
	}
}

// close ends all watches.
func (w *watcher) close() {
	w.mu.Lock() // Whoever has it may be about to start something.
	w.stop()
	w.mu.Unlock()
	w.running.Wait()
}

// become ends the wait of Watch.
func (one *watch) become(err error) {
	one.inForce = err == nil
	one.ready <- err
}

func (one *watch) wake() {
	select {
	case one.signal <- struct{}{}:
	default:
	}
}

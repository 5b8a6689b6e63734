package redisstore

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

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

	mu       sync.Mutex
	locks    map[string]*tracked
	servers  map[string]*tracker // by address
	failures int                 // in a row, of connections
}

// A tracked is a lock that is waited for.
type tracked struct {
	key     string
	watches []*watch
	server  *tracker // nil while it is looked for
	armed   bool     // the server tracks it
	held    bool     // what was last seen of it
	value   string
}

// A watch is one call of Watch.
type watch struct {
	signal  chan struct{}
	ready   chan error // room for one; gets the outcome of Watch
	inForce bool       // ready has had it
}

// The pauses between attempts to reach a server that tracks.
const (
	minReconnect = 50 * time.Millisecond
	maxReconnect = 2 * time.Second
)

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
}

// Watch implements [driver.Watcher]. A wake-up costs the store one GET, and
// so does every renewal of the lock by its holder; it signals nothing then. A
// server that is older than 6.0, or does not allow CLIENT TRACKING, is reported
// as [driver.ErrUnsupported].
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
		delete(w.locks, key)
		if t.server != nil {
			delete(t.server.locks, key)
		}
	}
}

// settle has each of these locks tracked by its server, after a pause.
func (w *watcher) settle(pause time.Duration, keys ...string) {
	if !w.sleep(pause) {
		return
	}
	for _, key := range keys {
		options, err := w.serverOf(key)
		w.mu.Lock()
		t := w.locks[key]
		switch {
		case t == nil || t.server != nil: // Nobody waits any more, or it is done.
		case err != nil:
			w.fail([]*tracked{t}, err)
		default:
			w.assign(t, options)
		}
		w.mu.Unlock()
	}
}

func (w *watcher) sleep(pause time.Duration) bool {
	if pause <= 0 {
		return w.ctx.Err() == nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// serverOf finds out how to reach the server that has a lock.
func (w *watcher) serverOf(key string) (*redis.Options, error) {
	switch client := w.s.client.(type) {
	case *redis.Client:
		return client.Options(), nil
	case *redis.ClusterClient:
		ctx, cancel := context.WithTimeout(w.ctx, requestBound)
		defer cancel()
		master, err := client.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		return master.Options(), nil
	}
	return nil, driver.ErrUnsupported
}

// assign hands a lock to the tracker of its server. The caller holds w.mu.
func (w *watcher) assign(t *tracked, options *redis.Options) {
	server := w.servers[options.Addr]
	if server == nil {
		if w.ctx.Err() != nil {
			return
		}
		server = &tracker{w: w, options: options, locks: map[string]*tracked{}}
		w.servers[options.Addr] = server
		w.running.Go(server.run)
	}
	t.server = server
	server.locks[t.key] = t
	if server.link != nil {
		server.link.get(t.key)
	}
}

// connected notes that the server can be reached, and has everything tracked
// there.
func (w *watcher) connected(server *tracker, l *trackLink) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = 0
	server.link = l
	for key := range server.locks {
		l.get(key)
	}
}

// disconnected notes that a connection has failed, and looks for the servers
// of the locks that were tracked there.
func (w *watcher) disconnected(server *tracker, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.servers[server.options.Addr] == server {
		delete(w.servers, server.options.Addr)
	}
	server.link = nil
	w.failures++
	lost := make([]*tracked, 0, len(server.locks))
	for _, t := range server.locks {
		lost = append(lost, t)
	}
	clear(server.locks)
	w.fail(lost, err)
}

// moved notes that a server does not track a lock, since it has it no longer.
func (w *watcher) moved(server *tracker, key string, err error) {
	if cluster, ok := w.s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(w.ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := server.locks[key]
	if t == nil {
		return
	}
	delete(server.locks, key)
	w.failures++
	w.fail([]*tracked{t}, err)
}

// fail ends the watches of these locks that are not in force yet. The others
// may have missed something: they are signalled, and the locks tracked again
// soon. The caller holds w.mu.
func (w *watcher) fail(lost []*tracked, err error) {
	var again []string
	for _, t := range lost {
		t.server, t.armed, t.held, t.value = nil, false, false, ""
		t.watches = slices.DeleteFunc(t.watches, func(one *watch) bool {
			if !one.inForce {
				one.become(err)
				return true
			}
			one.wake()
			return false
		})
		if len(t.watches) == 0 {
			delete(w.locks, t.key)
			continue
		}
		again = append(again, t.key)
	}
	if len(again) == 0 || w.ctx.Err() != nil {
		return
	}
	pause := min(minReconnect<<min(w.failures, 10), maxReconnect)
	pause = pause/2 + rand.N(pause/2)
	w.running.Go(func() { w.settle(pause, again...) })
}

// seen notes the value of a lock, which the server tracks from then on. It
// signals unless the holder is the same as before: it has only renewed then.
func (w *watcher) seen(server *tracker, key, value string, held bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := server.locks[key]
	if t == nil {
		return
	}
	same := held && t.held && t.value == value
	t.armed, t.held, t.value = true, held, value
	for _, one := range t.watches {
		if !one.inForce {
			one.become(nil)
		} else if !same {
			one.wake()
		}
	}
}

// close ends all watches.
func (w *watcher) close() {
	w.mu.Lock()
	w.stop()
	for _, server := range w.servers {
		if server.link != nil {
			server.link.close()
		}
	}
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

package redisstore

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// The pauses between attempts to reach a server that tracks.
const (
	minReconnect = 50 * time.Millisecond
	maxReconnect = 2 * time.Second
)

// reminder is the greatest time between two signals of a watch while its lock
// is not tracked.
const reminder = 2 * time.Second

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
	w.fail([]*tracked{t}, err)
}

// fail ends the watches of these locks that are not in force yet. The others
// may have missed something: they are signalled, and the locks tracked again
// soon. The caller holds w.mu.
func (w *watcher) fail(lost []*tracked, err error) {
	w.failures++
	var again []string
	for _, t := range lost {
		t.rest()
		t.server, t.armed = nil, false
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
	pause = upTo(pause)
	w.running.Go(func() { w.settle(pause, again...) })
	if !w.reminding {
		w.reminding = true
		w.running.Go(w.remind)
	}
}

// remind signals those who wait for locks that no server tracks, again and
// again until there is none.
func (w *watcher) remind() {
	for w.sleep(upTo(reminder)) {
		w.mu.Lock()
		w.reminding = false
		for _, t := range w.locks {
			if !t.armed {
				w.reminding = true
				t.wake()
			}
		}
		again := w.reminding
		w.mu.Unlock()
		if !again {
			return
		}
	}
}

// upTo draws from the upper half of d.
func upTo(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

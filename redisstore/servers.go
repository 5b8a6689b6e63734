package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// The pauses between attempts to reach a server that tracks.
const (
	minReconnect = 50 * time.Millisecond
	maxReconnect = 2 * time.Second
)

// untrackedInterval is the greatest time between two signals of a watch while its lock is not
// tracked.
const untrackedInterval = 2 * time.Second

// resubscribe makes the servers of these locks track them, after a pause.
func (w *watcher) resubscribe(pause time.Duration, keys ...string) {
	if retry.Sleep(w.ctx, pause) != nil {
		return
	}
	for _, key := range keys {
		options, err := w.serverOf(key)
		w.mu.Lock()
		t := w.locks[key]
		switch {
		case t == nil || t.server != nil: // Nothing waits any more, or it is done.
		case err != nil:
			w.failWatches([]*watchedKey{t}, err)
		default:
			w.assignServer(t, options)
		}
		w.mu.Unlock()
	}
}

// serverOf returns the options for a connection to the server that has a lock.
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

// assignServer assigns a lock to the tracker of its server. The caller holds w.mu.
func (w *watcher) assignServer(t *watchedKey, options *redis.Options) {
	server := w.servers[options.Addr]
	if server == nil {
		if w.ctx.Err() != nil {
			return
		}
		server = &trackingServer{w: w, options: options, locks: map[string]*watchedKey{}}
		w.servers[options.Addr] = server
		w.running.Go(server.connectAndRead)
	}
	t.server = server
	server.locks[t.key] = t
	if server.link != nil {
		server.link.requestValue(t.key)
	}
}

// connected records that the server is reachable, and makes it track all locks that are assigned
// to it.
func (w *watcher) connected(server *trackingServer, l *trackingConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = 0
	server.link = l
	for key := range server.locks {
		l.requestValue(key)
	}
}

// disconnected handles a failed connection, and finds the servers of the locks that were tracked
// there.
func (w *watcher) disconnected(server *trackingServer, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.servers[server.options.Addr] == server {
		delete(w.servers, server.options.Addr)
	}
	lost := make([]*watchedKey, 0, len(server.locks))
	for _, t := range server.locks {
		lost = append(lost, t)
	}
	clear(server.locks)
	w.failWatches(lost, err)
}

// onMoved handles a lock that a server does not track, since the lock is at another server now.
func (w *watcher) onMoved(server *trackingServer, key string, err error) {
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
	w.failWatches([]*watchedKey{t}, err)
}

// failWatches ends the watches of these locks that are not active yet. The others may have missed
// something: they are signaled, and the locks tracked again soon. The caller holds w.mu.
func (w *watcher) failWatches(lost []*watchedKey, err error) {
	w.failures++
	var again []string
	for _, t := range lost {
		t.stopTimers()
		t.server, t.armed = nil, false
		t.watches = slices.DeleteFunc(t.watches, func(one *watch) bool {
			if !one.active {
				one.setReady(err)
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
	pause = retry.HalfJitter(pause)
	w.running.Go(func() { w.resubscribe(pause, again...) })
	if !w.polling {
		w.polling = true
		w.running.Go(w.pollUntracked)
	}
}

// pollUntracked signals the waiters for locks that no server tracks, repeatedly until there is
// none.
func (w *watcher) pollUntracked() {
	for retry.Sleep(w.ctx, retry.HalfJitter(untrackedInterval)) == nil {
		w.mu.Lock()
		w.polling = false
		for _, t := range w.locks {
			if !t.armed {
				w.polling = true
				t.wake()
			}
		}
		again := w.polling
		w.mu.Unlock()
		if !again {
			return
		}
	}
}

package redisstore

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/notices"
	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	// listenDelay is how long a Store without waiters has made its first entry when it begins to
	// listen, so that a lock that is held for a moment costs no second connection.
	listenDelay = 200 * time.Millisecond

	// pingInterval is how often the connection for notices is tested, and replyTimeout bounds a
	// reply on it.
	pingInterval = 5 * time.Second
	replyTimeout = 3 * time.Second

	// minReconnect and maxReconnect bound the pauses between attempts to connect.
	minReconnect = 50 * time.Millisecond
	maxReconnect = 2 * time.Second
)

// A listener passes the messages that scripts publish for a Store to the functions that Notify has
// registered. The Store has one channel with a random name, and one connection, to the master; in a
// cluster, to any node. A message has the hash of an owner, which tells nothing of the secret, and
// the token or 0.
type listener struct {
	channel string
	notices notices.Registry
	start   sync.Once
	hurry   sync.Once
	waits   chan struct{} // closed when an entry waits
	ctx     context.Context
	stop    context.CancelFunc
	mu      sync.Mutex
	running sync.WaitGroup // Add is called with mu
	entries map[tag]tagged
	purgeAt int // the number of entries at which those that are over are deleted
}

// A tag is the hash of an owner.
type tag [sha1.Size]byte

// A tagged is an entry, until it is over at the latest.
type tagged struct {
	name, owner string
	until       time.Time
}

func (l *listener) init(prefix string) {
	l.channel = prefix + noticesSuffix + rand.Text()
	l.waits = make(chan struct{})
	l.entries = map[tag]tagged{}
	l.ctx, l.stop = context.WithCancel(context.Background())
}

// Notify implements [driver.Notifier]. The store listens from its first entry on. One whose user
// may not subscribe sends no notices.
func (s *Store) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.listener.notices.Notify(f)
}

// expect has the notices of an entry passed on for d and a minute.
func (l *listener) expect(name, owner string, d time.Duration) {
	key, now := tag(sha1.Sum([]byte(owner))), time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[key] = tagged{name, owner, now.Add(d + time.Minute)} // A late notice does no harm.
	if len(l.entries) > l.purgeAt {
		for key, e := range l.entries {
			if e.until.Before(now) {
				delete(l.entries, key)
			}
		}
		l.purgeAt = max(1000, 2*len(l.entries))
	}
}

// forget ends what expect began.
func (l *listener) forget(owner string) {
	key := tag(sha1.Sum([]byte(owner)))
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, key)
}

// startListening listens until the store is closed.
func (s *Store) startListening(waiting bool) {
	l := &s.listener
	l.start.Do(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.ctx.Err() == nil {
			l.running.Go(s.listen)
		}
	})
	if waiting {
		l.hurry.Do(func() { close(l.waits) })
	}
}

func (s *Store) listen() {
	l := &s.listener
	select {
	case <-l.waits:
	case <-time.After(listenDelay):
	case <-l.ctx.Done():
		return
	}
	for failures := 0; l.ctx.Err() == nil; failures++ {
		if s.forward() {
			failures = 0
		}
		_ = retry.Sleep(l.ctx, retry.Backoff(failures, minReconnect, maxReconnect))
	}
}

// forward passes on the messages of one connection until it fails, and reports whether there was
// one. A reply that is missing is a failure, since a connection that has died silently receives
// nothing.
func (s *Store) forward() (subscribed bool) {
	l := &s.listener
	ctx, end := context.WithCancel(l.ctx)
	pubsub := s.client.Subscribe(ctx)
	defer func() {
		end()
		_ = pubsub.Close()
	}()
	context.AfterFunc(ctx, func() { _ = pubsub.Close() })
	setUp, cancel := context.WithTimeout(ctx, replyTimeout)
	err := pubsub.Subscribe(setUp, l.channel)
	cancel()
	for err == nil {
		var message any
		message, err = pubsub.ReceiveTimeout(ctx, pingInterval)
		switch message := message.(type) {
		case *redis.Message:
			l.receive(message.Payload)
		case *redis.Subscription:
			subscribed = true
			l.notices.Send("", "", 0) // What was sent before is lost.
		case nil:
			if ctx.Err() == nil && isTimeout(err) {
				err = pubsub.Ping(ctx)
				if err == nil {
					message, err = pubsub.ReceiveTimeout(ctx, replyTimeout)
				}
				if m, ok := message.(*redis.Message); ok {
					l.receive(m.Payload)
				}
			}
		}
	}
	return subscribed
}

func isTimeout(err error) bool {
	timeout, ok := err.(interface{ Timeout() bool })
	return ok && timeout.Timeout()
}

// receive passes on a message. It may come from any client that knows the channel.
func (l *listener) receive(payload string) {
	text, number, _ := strings.Cut(payload, " ")
	token, err := strconv.ParseInt(number, 10, 64)
	var key tag
	if len(text) != hex.EncodedLen(len(key)) || err != nil || token < 0 {
		return
	}
	if _, err := hex.Decode(key[:], []byte(text)); err != nil {
		return
	}
	l.mu.Lock()
	e, found := l.entries[key]
	l.mu.Unlock()
	if found {
		l.notices.Send(e.name, e.owner, token)
	}
}

// close ends the connection. It does not wait for one that hangs while it is made, which ends by
// the timeouts of the client.
func (l *listener) close() {
	l.mu.Lock() // A goroutine that holds it may be about to start another.
	l.stop()
	l.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		l.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Second):
	}
}

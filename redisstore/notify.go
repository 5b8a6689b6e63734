package redisstore

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/notices"
	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	// listenDelay is the time from the first entry of a Store without waiters to its listening, so
	// that a program which ends within it needs no second connection.
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
	notices notices.Mailbox
	ctx     context.Context // of the connection
	stop    context.CancelFunc

	mu      sync.Mutex
	ended   chan struct{} // closed when the connection has ended; nil before it is begun
	delayed bool          // it is begun listenDelay after the first entry
}

func (l *listener) init(prefix string) {
	l.channel = prefix + noticesSuffix + rand.Text()
	l.notices.Tag = func(_, owner string) string { return hashOf(owner) }
	l.ctx, l.stop = context.WithCancel(context.Background())
}

// Notify implements [driver.Notifier]. The store listens from the first entry after it on. One
// whose user may not subscribe sends no notices.
func (s *Store) Notify(f func(name, owner string, token int64)) (stop func()) {
	return s.listener.notices.Notify(f)
}

// hashOf returns the hash of an owner as it is in a message.
func hashOf(owner string) string {
	sum := sha1.Sum([]byte(owner))
	return hex.EncodeToString(sum[:])
}

// startListening makes the store listen until it is closed: at once if an entry waits, otherwise
// listenDelay after the first entry.
func (s *Store) startListening(waits bool) {
	l := &s.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended != nil || l.ctx.Err() != nil:
	case waits:
		l.ended = make(chan struct{})
		go s.listen()
	case !l.delayed && !l.notices.None():
		l.delayed = true
		time.AfterFunc(listenDelay, func() { s.startListening(true) })
	}
}

func (s *Store) listen() {
	l := &s.listener
	defer close(l.ended)
	for failures := 0; l.ctx.Err() == nil; failures++ {
		if s.forward() {
			failures = 0
		}
		_ = retry.Sleep(l.ctx, retry.Backoff(failures, minReconnect, maxReconnect))
	}
}

// forward passes on the messages of one connection until it fails, and reports whether there was
// one. A connection that has died silently receives nothing: one that is silent for long, after a
// PING too, is a failure.
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
	silence := pingInterval // that is awaited
	for err == nil {
		var message any
		message, err = pubsub.ReceiveTimeout(ctx, silence)
		switch message := message.(type) {
		case *redis.Message:
			hash, number, _ := strings.Cut(message.Payload, " ")
			l.notices.Receive(hash, number)
		case *redis.Subscription:
			subscribed = true
			l.notices.Send("", "", 0) // What was sent before is lost.
		}
		var timeout net.Error
		switch {
		case err == nil:
			silence = pingInterval
		case silence == pingInterval && errors.As(err, &timeout) && timeout.Timeout():
			err = pubsub.Ping(ctx)
			silence = replyTimeout
		}
	}
	return subscribed
}

// close ends the connection. It does not wait for one that hangs while it is made, which ends by
// the timeouts of the client.
func (l *listener) close() {
	l.mu.Lock() // A goroutine that holds it may be about to start another.
	l.stop()
	ended := l.ended
	l.mu.Unlock()
	if ended == nil {
		return
	}
	select {
	case <-ended:
	case <-time.After(time.Second):
	}
}

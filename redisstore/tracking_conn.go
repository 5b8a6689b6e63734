package redisstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// A trackingConn is the connection of a trackingServer.
type trackingConn struct {
	conn    net.Conn
	reader  *bufio.Reader
	silence time.Duration // after which the reader tests the connection

	mu      sync.Mutex
	pending []pendingCommand
	unsent  []byte
	more    chan struct{} // room for one: there is something unsent
}

// A pendingCommand is a command without a reply so far.
type pendingCommand struct {
	key string    // of a GET, "" for a PING
	due time.Time // when the reply must have come
}

const (
	// minSilence is how long a connection may be silent before it is tested, just after a watch
	// has become active. It doubles with every test up to maxSilence. So a connection that has
	// failed silently delays a waiter in proportion to its wait, and a long wait costs little.
	minSilence = 2 * time.Second
	maxSilence = 40 * time.Second

	// replyTimeout bounds a reply, and the set-up of a connection.
	replyTimeout = 3 * time.Second
)

// handshake switches to RESP3, gives the credentials, and switches tracking on.
func (l *trackingConn) handshake(ctx context.Context, o *redis.Options) error {
	user, password, err := credentials(ctx, o)
	if err != nil {
		return err
	}
	hello := []string{"HELLO", "3"}
	if password != "" {
		if user == "" {
			user = "default"
		}
		hello = append(hello, "AUTH", user, password)
	}
	for _, command := range [][]string{hello, {"SELECT", strconv.Itoa(o.DB)}, {"CLIENT", "TRACKING", "ON"}} {
		if command[0] == "SELECT" && o.DB == 0 {
			continue
		}
		if err := l.roundTrip(command...); err != nil {
			return err
		}
	}
	return nil
}

func credentials(ctx context.Context, o *redis.Options) (user, password string, err error) {
	switch {
	case o.CredentialsProviderContext != nil:
		return o.CredentialsProviderContext(ctx)
	case o.CredentialsProvider != nil:
		user, password = o.CredentialsProvider()
		return user, password, nil
	}
	return o.Username, o.Password, nil
}

// roundTrip sends a command and reads its reply, before readLoop runs.
func (l *trackingConn) roundTrip(command ...string) error {
	if _, err := l.conn.Write(encodeCommand(command...)); err != nil {
		return err
	}
	reply, err := decodeReply(l.reader)
	if err != nil {
		return err
	}
	refusal, refused := reply.(replyError)
	if !refused {
		return nil
	}
	text := firstLine(string(refusal))
	for _, sign := range []string{"unknown", "NOPROTO", "NOPERM", "syntax"} {
		if strings.Contains(text, sign) {
			return fmt.Errorf("%w: wake-ups: the server does not let its client track keys (%s)", driver.ErrUnsupported, text)
		}
	}
	return fmt.Errorf("the server refuses a connection for wake-ups: %s", text)
}

// requestValue requests the value of a key, which the server tracks from then on.
func (l *trackingConn) requestValue(key string) {
	l.queueCommand(key, "GET", key)
}

// queueCommand passes a command to writeLoop. It does not wait for a server that reads nothing: its
// callers hold the watcher's mutex, which serves the locks of other servers, too. readLoop notices
// that there is no reply.
func (l *trackingConn) queueCommand(key string, command ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, pendingCommand{key, time.Now().Add(replyTimeout)})
	l.unsent = append(l.unsent, encodeCommand(command...)...)
	_ = l.conn.SetReadDeadline(l.pending[0].due) // readLoop may be set to wait longer. It notices a closed connection.
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// writeLoop sends what is to be sent until the connection has ended.
func (l *trackingConn) writeLoop(ended <-chan struct{}) {
	for {
		select {
		case <-l.more:
		case <-ended:
			return
		}
		l.mu.Lock()
		message := l.unsent
		l.unsent = nil
		l.mu.Unlock()
		if len(message) > 0 { // Otherwise the last message contained it.
			_, _ = l.conn.Write(message) // After a failure there is no reply: see readLoop.
		}
	}
}

// close ends the connection, and so readLoop.
func (l *trackingConn) close() {
	_ = l.conn.Close() // There is nothing to be lost.
}

// popPending returns the key of the command that the next reply is to.
func (l *trackingConn) popPending() (key string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return "", false
	}
	key = l.pending[0].key
	l.pending = l.pending[1:]
	return key, true
}

// waitReadable returns when the server has sent something. It tests the connection
// when that takes long.
func (l *trackingConn) waitReadable() error {
	for {
		if err := l.setReadLimit(); err != nil {
			return err
		}
		_, err := l.reader.Peek(1)
		if err == nil {
			return l.conn.SetReadDeadline(time.Now().Add(replyTimeout))
		}
		pending, overdue := l.oldestPending()
		switch {
		case overdue || !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case !pending:
			l.silence = min(2*l.silence, maxSilence)
			l.queueCommand("", "PING")
		}
	}
}

// setReadLimit bounds the wait for what the server sends next.
func (l *trackingConn) setReadLimit() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := time.Now().Add(l.silence)
	if len(l.pending) > 0 {
		due = l.pending[0].due
	}
	return l.conn.SetReadDeadline(due)
}

// oldestPending reports whether a reply is pending, and whether it is overdue.
func (l *trackingConn) oldestPending() (pending, overdue bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return false, false
	}
	return true, !time.Now().Before(l.pending[0].due)
}

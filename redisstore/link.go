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

// A trackLink is the connection of a tracker.
type trackLink struct {
	conn    net.Conn
	reader  *bufio.Reader
	silence time.Duration // after which the reader tests the connection

	mu      sync.Mutex
	pending []question
	unsent  []byte
	more    chan struct{} // room for one: there is something unsent
}

// A question is a command that has not been answered yet.
type question struct {
	key string    // of a GET, "" for a PING
	due time.Time // when the answer must have come
}

const (
	// minSilence is how long a connection may be silent before it is tested, just
	// after somebody has begun to wait. It doubles with every test up to
	// maxSilence: a waiter who is delayed by a connection that died without a
	// word is delayed in proportion to his wait, and one who waits for long costs
	// next to nothing.
	minSilence = 2 * time.Second
	maxSilence = 40 * time.Second

	// trackReply is how long an answer may take, and setting up a connection.
	trackReply = 3 * time.Second
)

// setUp switches to RESP3, gives the credentials, and switches tracking on.
func (l *trackLink) setUp(ctx context.Context, o *redis.Options) error {
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
		if err := l.ask(command...); err != nil {
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

// ask sends a command and waits for its answer, before there is a reader.
func (l *trackLink) ask(command ...string) error {
	if _, err := l.conn.Write(encode(command...)); err != nil {
		return err
	}
	reply, err := decode(l.reader)
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

// get asks for a key, which the server tracks from then on.
func (l *trackLink) get(key string) {
	l.send(key, "GET", key)
}

// send hands a command to the writer. It does not wait for a server that reads
// nothing: those who ask hold the watcher's mutex, and other servers' locks are
// waited for, too. That no answer comes is seen by the reader.
func (l *trackLink) send(key string, command ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, question{key, time.Now().Add(trackReply)})
	l.unsent = append(l.unsent, encode(command...)...)
	_ = l.conn.SetReadDeadline(l.pending[0].due) // The reader may be prepared to wait longer. If it is closed, he knows.
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// write sends what is to be sent until the connection has ended.
func (l *trackLink) write(ended <-chan struct{}) {
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
		if len(message) > 0 { // Else it went along with the last.
			_, _ = l.conn.Write(message) // If it fails no answer comes, which the reader sees.
		}
	}
}

// close ends the connection; the reader sees it.
func (l *trackLink) close() {
	_ = l.conn.Close() // There is nothing to be lost.
}

// answered returns what the next answer is to.
func (l *trackLink) answered() (key string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return "", false
	}
	key = l.pending[0].key
	l.pending = l.pending[1:]
	return key, true
}

// await returns when the server has sent something. It tests the connection
// when that takes long.
func (l *trackLink) await() error {
	for {
		if err := l.limit(); err != nil {
			return err
		}
		_, err := l.reader.Peek(1)
		if err == nil {
			return l.conn.SetReadDeadline(time.Now().Add(trackReply))
		}
		asked, overdue := l.waits()
		switch {
		case overdue || !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case !asked:
			l.silence = min(2*l.silence, maxSilence)
			l.send("", "PING")
		}
	}
}

// limit bounds the wait for what the server sends next.
func (l *trackLink) limit() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := time.Now().Add(l.silence)
	if len(l.pending) > 0 {
		due = l.pending[0].due
	}
	return l.conn.SetReadDeadline(due)
}

// waits reports whether an answer is to come, and whether it should have come.
func (l *trackLink) waits() (asked, overdue bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return false, false
	}
	return true, !time.Now().Before(l.pending[0].due)
}

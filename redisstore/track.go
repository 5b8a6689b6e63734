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

// A tracker is what the watcher has to do with one server. The client library
// hands on what a server sends of its own accord only when it sends a command
// itself, so that the tracker has a connection of its own, of RESP3.
type tracker struct {
	w       *watcher
	options *redis.Options

	// Guarded by w.mu.
	locks map[string]*tracked
	link  *trackLink // nil until it is set up
}

// A trackLink is the connection of a tracker.
type trackLink struct {
	conn   net.Conn
	reader *bufio.Reader

	mu      sync.Mutex
	pending []string // the keys of GETs not yet answered, "" for a PING
}

const (
	// trackIdle is how long a connection may be silent before it is tested.
	trackIdle = 30 * time.Second

	// trackReply is how long an answer may take.
	trackReply = 5 * time.Second
)

// run serves the locks of the server until the connection fails.
func (t *tracker) run() {
	l, err := t.connect()
	if err == nil {
		t.w.connected(t, l)
		// A link that was made while the watcher closed has not been told.
		stop := context.AfterFunc(t.w.ctx, l.close)
		err = t.serve(l)
		stop()
		l.close()
	}
	t.w.disconnected(t, err)
}

// connect makes the connection, with the client's own ways of dialling and of
// naming itself.
func (t *tracker) connect() (*trackLink, error) {
	o := t.options
	if o.StreamingCredentialsProvider != nil {
		return nil, fmt.Errorf("%w: wake-ups with a StreamingCredentialsProvider", driver.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(t.w.ctx, trackReply)
	defer cancel()
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err != nil {
		return nil, notApplied{err}
	}
	l := &trackLink{conn: conn, reader: bufio.NewReader(conn)}
	if err := l.setUp(ctx, o); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

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
	if err := l.conn.SetDeadline(time.Now().Add(trackReply)); err != nil {
		return err
	}
	if _, err := l.conn.Write(encode(command...)); err != nil {
		return err
	}
	reply, err := decode(l.reader)
	if err != nil {
		return err
	}
	refusal, refused := reply.(replyError)
	if !refused {
		return l.conn.SetDeadline(time.Time{})
	}
	text := firstLine(string(refusal))
	for _, sign := range []string{"unknown", "NOPROTO", "NOPERM", "syntax"} {
		if strings.Contains(text, sign) {
			return fmt.Errorf("%w: wake-ups: the server does not let its client track keys (%s)", driver.ErrUnsupported, text)
		}
	}
	return fmt.Errorf("the server refuses a connection for wake-ups: %s", text)
}

// get asks for a key, which the server tracks from then on. An error is seen by
// the reader.
func (l *trackLink) get(key string) {
	l.send(key, "GET", key)
}

func (l *trackLink) send(pending string, command ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, pending)
	deadline := time.Now().Add(trackReply)
	if l.conn.SetDeadline(deadline) != nil {
		return
	}
	if _, err := l.conn.Write(encode(command...)); err != nil {
		l.close()
	}
}

// close ends the connection; the reader sees it.
func (l *trackLink) close() {
	_ = l.conn.Close() // There is nothing to be lost.
}

// answered returns what the next answer is to.
func (l *trackLink) answered() (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return "", false
	}
	key := l.pending[0]
	l.pending = l.pending[1:]
	return key, true
}

// await returns when the server has sent something. It tests the connection
// when that takes long.
func (l *trackLink) await() error {
	for {
		l.mu.Lock()
		waits := trackIdle
		asked := len(l.pending) > 0
		if asked {
			waits = trackReply
		}
		err := l.conn.SetReadDeadline(time.Now().Add(waits))
		l.mu.Unlock()
		if err != nil {
			return err
		}
		_, err = l.reader.Peek(1)
		switch {
		case err == nil:
			return l.conn.SetReadDeadline(time.Now().Add(trackReply))
		case asked || !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
		l.send("", "PING")
	}
}

// serve reads what the server sends until the connection fails.
func (t *tracker) serve(l *trackLink) error {
	for {
		if err := l.await(); err != nil {
			return err
		}
		message, err := decode(l.reader)
		if err != nil {
			return err
		}
		if news, ok := message.(push); ok {
			t.invalidated(l, news)
			continue
		}
		key, ok := l.answered()
		if !ok {
			return errReply("an answer without a question")
		}
		if key != "" {
			t.answered(key, message)
		}
	}
}

// answered takes the answer to the GET of a key.
func (t *tracker) answered(key string, answer any) {
	switch answer := answer.(type) {
	case nil:
		t.w.seen(t, key, "", false)
	case string:
		t.w.seen(t, key, answer, true)
	case replyError:
		if strings.HasPrefix(string(answer), "WRONGTYPE") {
			t.w.seen(t, key, "", true)
			return
		}
		t.w.moved(t, key, fmt.Errorf("the server cannot track a lock: %s", firstLine(string(answer))))
	}
}

// invalidated asks again for the keys that have changed; nil stands for all.
func (t *tracker) invalidated(l *trackLink, news push) {
	if len(news) != 2 || news[0] != "invalidate" {
		return
	}
	keys, ok := news[1].([]any)
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if !ok {
		for key := range t.locks {
			l.get(key)
		}
	}
	for _, item := range keys {
		if key, ok := item.(string); ok && t.locks[key] != nil {
			l.get(key)
		}
	}
}

package redisstore

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// A trackingServer is a server that tracks locks for the watcher. The client library delivers
// messages that are no replies only when it sends a command itself. So a trackingServer has a
// connection of its own, of RESP3.
type trackingServer struct {
	w       *watcher
	options *redis.Options

	// Guarded by w.mu.
	locks map[string]*watchedKey
	link  *trackingConn // nil until it is set up
}

// connectAndRead serves the locks of the server until the connection fails.
func (t *trackingServer) connectAndRead() {
	l, err := t.connect()
	if err == nil {
		ctx, end := context.WithCancel(t.w.ctx)
		context.AfterFunc(ctx, l.close)
		t.w.running.Go(func() { l.writeLoop(ctx.Done()) })
		t.w.connected(t, l)
		err = t.readLoop(l)
		end()
		l.close()
	}
	t.w.disconnected(t, err)
}

// connect makes the connection, with the dialer and the credentials of the client.
func (t *trackingServer) connect() (*trackingConn, error) {
	o := t.options
	if o.StreamingCredentialsProvider != nil {
		return nil, fmt.Errorf("%w: wake-ups with a StreamingCredentialsProvider", driver.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(t.w.ctx, replyTimeout)
	defer cancel()
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err != nil {
		return nil, driver.NotApplied(err)
	}
	l := &trackingConn{conn: conn, reader: bufio.NewReader(conn), silence: minSilence, more: make(chan struct{}, 1)}
	stop := context.AfterFunc(ctx, l.close)
	defer stop()
	if err := l.handshake(ctx, o); err != nil {
		l.close()
		return nil, cmp.Or(ctx.Err(), err)
	}
	return l, nil
}

// readLoop reads what the server sends until the connection fails.
func (t *trackingServer) readLoop(l *trackingConn) error {
	for {
		if err := l.waitReadable(); err != nil {
			return err
		}
		message, err := decodeReply(l.reader)
		if err != nil {
			return err
		}
		if pushed, ok := message.(push); ok {
			t.onPush(l, pushed)
			continue
		}
		key, ok := l.popPending()
		if !ok {
			return errReply("an answer without a question")
		}
		if key != "" && t.onReply(key, message) {
			l.silence = minSilence
		}
	}
}

// onReply handles the reply to the GET of a key, and reports whether it has made a watch active.
func (t *trackingServer) onReply(key string, reply any) bool {
	switch reply := reply.(type) {
	case nil:
		return t.w.onValue(t, key, "", false)
	case string:
		return t.w.onValue(t, key, reply, true)
	case replyError:
		if strings.HasPrefix(string(reply), "WRONGTYPE") {
			return t.w.onValue(t, key, "", true)
		}
		t.w.onMoved(t, key, fmt.Errorf("the server cannot track a lock: %s", firstLine(string(reply))))
	}
	return false
}

// onPush handles a message that keys have changed; nil stands for all keys.
func (t *trackingServer) onPush(l *trackingConn, message push) {
	if len(message) != 2 || message[0] != "invalidate" {
		return
	}
	keys, ok := message[1].([]any)
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if !ok {
		for _, lock := range t.locks {
			t.w.onInvalidate(lock, l)
		}
	}
	for _, item := range keys {
		key, _ := item.(string)
		if lock := t.locks[key]; lock != nil {
			t.w.onInvalidate(lock, l)
		}
	}
}

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

// run serves the locks of the server until the connection fails.
func (t *tracker) run() {
	l, err := t.connect()
	if err == nil {
		ctx, end := context.WithCancel(t.w.ctx)
		context.AfterFunc(ctx, l.close)
		t.w.running.Go(func() { l.write(ctx.Done()) })
		t.w.connected(t, l)
		err = t.serve(l)
		end()
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
	l := &trackLink{conn: conn, reader: bufio.NewReader(conn), silence: minSilence, more: make(chan struct{}, 1)}
	stop := context.AfterFunc(ctx, l.close)
	defer stop()
	if err := l.setUp(ctx, o); err != nil {
		l.close()
		return nil, cmp.Or(ctx.Err(), err)
	}
	return l, nil
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
		if key != "" && t.answered(key, message) {
			l.silence = minSilence
		}
	}
}

// answered takes the answer to the GET of a key, and reports whether it has put
// a watch in force.
func (t *tracker) answered(key string, answer any) bool {
	switch answer := answer.(type) {
	case nil:
		return t.w.seen(t, key, "", false)
	case string:
		return t.w.seen(t, key, answer, true)
	case replyError:
		if strings.HasPrefix(string(answer), "WRONGTYPE") {
			return t.w.seen(t, key, "", true)
		}
		t.w.moved(t, key, fmt.Errorf("the server cannot track a lock: %s", firstLine(string(answer))))
	}
	return false
}

// invalidated takes the news that keys have changed; nil stands for all.
func (t *tracker) invalidated(l *trackLink, news push) {
	if len(news) != 2 || news[0] != "invalidate" {
		return
	}
	keys, ok := news[1].([]any)
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if !ok {
		for _, lock := range t.locks {
			t.w.changed(lock, l)
		}
	}
	for _, item := range keys {
		key, _ := item.(string)
		if lock := t.locks[key]; lock != nil {
			t.w.changed(lock, l)
		}
	}
}

package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/olddriver"
	"github.com/holdfast-go/holdfast/internal/olddriver/notices"
	"github.com/holdfast-go/holdfast/internal/retry"
)

// A notifier receives the messages that scripts publish about the places of a Store, and passes
// them on. It has a channel with a random name, and one connection to the server; in a cluster, a
// channel for each hash slot in which something waits, and a connection to each node that has such
// slots. The first place makes the connections, and they stay until the Store is closed.
type notifier struct {
	s       *engine
	id      string          // the random part of the names of channels
	ctx     context.Context // ends at close
	stop    context.CancelFunc
	running sync.WaitGroup

	notices notices.Registry

	mu       sync.Mutex
	channels map[string]*noticeChannel
	conns    map[*redis.Client]*noticeConn // by the client of the server
	failures int                           // in a row, of connections
	retryAt  time.Time                     // when a channel may be added after a failure
	plain    bool                          // The cluster is too old for channels of hash slots.
}

// A noticeChannel is a channel to which messages are published.
type noticeChannel struct {
	name  string
	lock  string        // a lock in the hash slot of the channel
	tried chan struct{} // closed when reach is set, or after the first failure
	until time.Time     // Requests wait for that until then.
	reach string        // how scripts publish to it: see notifier.confirm; "" before it is confirmed
	live  bool          // its connection receives its messages
}

// A noticeConn is the connection to one server.
type noticeConn struct {
	client   *redis.Client
	pubsub   *redis.PubSub
	channels map[string]*noticeChannel
}

const (
	// pingInterval is how often the connection for notices is tested.
	pingInterval = 5 * time.Second

	// replyTimeout bounds a reply on it, and its set-up.
	replyTimeout = 3 * time.Second

	// minReconnect and maxReconnect bound the pauses between attempts to connect.
	minReconnect = 50 * time.Millisecond
	maxReconnect = 2 * time.Second
)

// canSubscribe reports whether the store can have connections for notices to the client's servers.
func canSubscribe(client redis.UniversalClient) bool {
	switch client.(type) {
	case *redis.Client, *redis.ClusterClient:
		return true
	}
	return false
}

func (n *notifier) init(s *engine) {
	n.s, n.id = s, rand.Text()
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.channels = map[string]*noticeChannel{}
	n.conns = map[*redis.Client]*noticeConn{}
}

// Notify implements [olddriver.Notifier]. A store whose user may not subscribe gives no places and
// sends no notices.
func (s *engine) Notify(f func(olddriver.Notice)) (stop func()) { return s.notifier.notices.Notify(f) }

// reachOf returns how scripts reach this Store, for the wait of a call: "" if they do not.
func (n *notifier) reachOf(tag string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.channels[n.channelName(tag)]; c != nil && c.reach != "" {
		return c.reach + n.id
	}
	return ""
}

func (n *notifier) channelName(tag string) string { return tag + n.s.prefix + noticesSuffix + n.id }

// subscribe makes the channel of a lock ready to receive, and reports whether it is. It waits for a
// first connection, and not for one that has failed or hangs: the caller tries again at intervals.
func (n *notifier) subscribe(ctx context.Context, lock, tag string) bool {
	name := n.channelName(tag)
	n.mu.Lock()
	c := n.channels[name]
	if c == nil {
		if n.ctx.Err() != nil || time.Now().Before(n.retryAt) {
			n.mu.Unlock()
			return false
		}
		c = &noticeChannel{name: name, lock: lock, tried: make(chan struct{})}
		if n.failures == 0 {
			c.until = time.Now().Add(replyTimeout)
		}
		n.channels[name] = c
		n.running.Go(func() { n.attach(c) })
	}
	n.mu.Unlock()
	timeout := time.NewTimer(time.Until(c.until))
	defer timeout.Stop()
	select {
	case <-c.tried:
	case <-timeout.C:
	case <-ctx.Done():
	}
	return n.reachOf(tag) != ""
}

// attach subscribes to a channel on the connection to its server.
func (n *notifier) attach(c *noticeChannel) {
	client, err := n.serverOf(c.lock)
	n.mu.Lock()
	if err != nil || n.ctx.Err() != nil {
		n.detach(c)
		n.mu.Unlock()
		return
	}
	conn := n.conns[client]
	if conn == nil {
		conn = &noticeConn{client: client, pubsub: client.Subscribe(n.ctx), channels: map[string]*noticeChannel{}}
		n.conns[client] = conn
		n.running.Go(func() { n.read(conn) })
	}
	conn.channels[c.name] = c
	n.mu.Unlock()
	n.request(conn, c.name)
}

// serverOf returns the client of the server that has a lock.
func (n *notifier) serverOf(lock string) (*redis.Client, error) {
	cluster, ok := n.s.client.(*redis.ClusterClient)
	if !ok {
		return n.s.client.(*redis.Client), nil
	}
	ctx, cancel := context.WithTimeout(n.ctx, replyTimeout)
	defer cancel()
	return cluster.MasterForKey(ctx, lock)
}

// request sends the request to subscribe. read gets the reply, and notices a failure.
func (n *notifier) request(conn *noticeConn, name string) {
	ctx, cancel := context.WithTimeout(n.ctx, replyTimeout)
	defer cancel()
	var err error
	if n.sharded() {
		err = conn.pubsub.SSubscribe(ctx, name)
	} else {
		err = conn.pubsub.Subscribe(ctx, name)
	}
	if err != nil {
		_ = conn.pubsub.Close() // for read
	}
}

// sharded reports whether the channels are those of hash slots. Messages to other channels of a
// cluster go to all nodes.
func (n *notifier) sharded() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.s.cluster && !n.plain
}

// read receives the messages of a server until the connection fails. A reply that is missing is a
// failure, since a connection that has died silently receives nothing.
func (n *notifier) read(conn *noticeConn) {
	ctx, end := context.WithCancel(n.ctx)
	context.AfterFunc(ctx, func() { _ = conn.pubsub.Close() })
	n.running.Go(func() {
		for retry.Sleep(ctx, pingInterval) == nil {
			pingCtx, cancel := context.WithTimeout(ctx, replyTimeout)
			_ = conn.pubsub.Ping(pingCtx)
			cancel()
		}
	})
	var err error
	for err == nil {
		var message any
		message, err = conn.pubsub.ReceiveTimeout(ctx, pingInterval+replyTimeout)
		switch message := message.(type) {
		case *redis.Message:
			n.receive(message.Payload)
		case *redis.Subscription:
			if strings.HasSuffix(message.Kind, "unsubscribe") {
				err = errors.New("the hash slot has moved")
			} else {
				n.running.Go(func() { n.confirm(conn, message.Channel) })
			}
		}
	}
	end()
	n.disconnected(conn, err)
}

// receive passes a message on. See notify in lua/queue.lua.
func (n *notifier) receive(message string) {
	words := strings.SplitN(message, "\n", 4)
	if len(words) != 4 {
		return
	}
	token, err := strconv.ParseInt(words[0], 10, 64)
	tokens, err2 := strconv.Atoi(words[1])
	name, ok := strings.CutPrefix(words[3], n.s.prefix)
	if err != nil || err2 != nil || !ok {
		return
	}
	notice := olddriver.Notice{Kind: olddriver.Ask, Name: name, Owner: words[2]}
	if token > 0 {
		notice.Kind, notice.Token, notice.Tokens = olddriver.Granted, token, tokens
	}
	n.notices.Send(notice)
}

// confirm records that a channel receives. It sets reach to P, or to S for a channel of a hash
// slot. The letter is lower-case if the server does not count this subscriber, as behind a proxy
// for several servers. For scripts, a count of 0 then does not mean that the client has ended.
// Messages may have been lost since an earlier confirmation, and so confirm sends an Ask.
func (n *notifier) confirm(conn *noticeConn, name string) {
	ctx, cancel := context.WithTimeout(n.ctx, replyTimeout)
	defer cancel()
	reach, count := "p", conn.client.PubSubNumSub
	if n.sharded() {
		reach, count = "s", conn.client.PubSubShardNumSub
	}
	// A channel without a hash slot has subscribers at every node of a cluster. Each node counts
	// only its own.
	if counts, err := count(ctx, name).Result(); err == nil && counts[name] > 0 && (reach == "s" || !n.s.cluster) {
		reach = strings.ToUpper(reach)
	}
	n.mu.Lock()
	c := conn.channels[name]
	if c == nil || n.conns[conn.client] != conn {
		n.mu.Unlock()
		return
	}
	n.failures = 0
	again := c.reach != ""
	if !again {
		close(c.tried)
	}
	c.live, c.reach = true, reach
	for _, other := range conn.channels {
		again = again && other.live // One notice is enough for all.
	}
	n.mu.Unlock()
	if again {
		n.notices.Send(olddriver.Notice{Kind: olddriver.Ask})
	}
}

// disconnected handles a failed connection. Channels that have received are subscribed again, at
// the servers that have their hash slots then.
func (n *notifier) disconnected(conn *noticeConn, err error) {
	_ = conn.pubsub.Close()
	if cluster, ok := n.s.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(n.ctx)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, conn.client)
	n.failures++
	if err != nil && strings.Contains(err.Error(), "unknown command") && n.s.cluster {
		n.plain = true
	}
	for _, c := range conn.channels {
		n.detach(c)
	}
}

// detach gives up a channel that was never confirmed. It attaches any other again after a pause.
// The caller holds n.mu.
func (n *notifier) detach(c *noticeChannel) {
	pause := retry.Backoff(n.failures, minReconnect, maxReconnect)
	c.live = false
	if c.reach == "" {
		n.retryAt = time.Now().Add(pause)
		delete(n.channels, c.name)
		close(c.tried)
		return
	}
	if n.ctx.Err() == nil {
		n.running.Go(func() {
			if retry.Sleep(n.ctx, pause) == nil {
				n.attach(c)
			}
		})
	}
}

// close ends the connections.
func (n *notifier) close() {
	n.mu.Lock() // A goroutine that holds it may be about to start another.
	n.stop()
	n.mu.Unlock()
	n.running.Wait()
}

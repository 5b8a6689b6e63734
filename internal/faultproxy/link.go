package faultproxy

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A loss is a request that is to be lost, or whose reply is.
type loss struct {
	match func([]byte) bool
	reply bool
}

// A link is one connection through the proxy.
type link struct {
	p     *Proxy
	ends  [2]net.Conn   // of the client and of the server
	over  chan struct{} // closed when the link is cut
	once  sync.Once
	loses atomic.Bool // the next answer
}

// cut ends the link with a reset.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.over)
		reset(l.ends[0])
		reset(l.ends[1])
	})
}

// reset closes a connection at once, with what is still to be sent.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // Without it the close is gentler, and no less a close.
	}
	_ = conn.Close() // Nobody is left to care.
}

// pump passes on what goes one way until the link is cut or one end closes.
func (l *link) pump(way Direction) {
	defer l.remove()
	from, to := l.ends[way], l.ends[1-way]
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			l.p.traffic[way].count(n)
		}
		if n > 0 && (!l.pass(way) || !l.spared(way, buffer[:n])) {
			return
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

func (l *link) remove() {
	l.cut()
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	delete(l.p.links, l)
}

// pass waits as long as the proxy holds back or delays what goes this way, and
// reports whether the link is still there.
func (l *link) pass(way Direction) bool {
	for {
		l.p.mu.Lock()
		gate, delay := l.p.gate[way], l.p.delay[way]
		l.p.mu.Unlock()
		if gate == nil {
			return l.sleep(delay)
		}
		select {
		case <-gate:
		case <-l.over:
			return false
		}
	}
}

func (l *link) sleep(delay span) bool {
	if delay.max <= 0 {
		return true
	}
	timer := time.NewTimer(delay.min + rand.N(delay.max-delay.min+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.over:
		return false
	}
}

// spared reports whether these bytes are passed on: they are not if they are
// the request or the answer that is to be lost.
func (l *link) spared(way Direction, bytes []byte) bool {
	if way == Down {
		return !l.loses.Load()
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	loss := l.p.loss
	if loss == nil || loss.match != nil && !loss.match(bytes) {
		return true
	}
	l.p.loss = nil
	l.loses.Store(loss.reply)
	return loss.reply
}

package faultproxy

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// An echo is a server that sends back what it gets, and counts it.
type echo struct {
	addr string
	got  atomic.Int64 // bytes
}

func (e *echo) Write(b []byte) (int, error) {
	e.got.Add(int64(len(b)))
	return len(b), nil
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	e := &echo{addr: l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, io.TeeReader(conn, e))
			}()
		}
	}()
	return e
}

func setUp(t *testing.T) (*Proxy, *echo) {
	t.Helper()
	t.Parallel()
	e := startEcho(t)
	return Start(t, e.addr), e
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

const bound = 10 * time.Second

// ask sends text and returns the error of waiting for it, and what was sent before, to come back.
func ask(conn net.Conn, before, text string, within time.Duration) error {
	if _, err := conn.Write([]byte(text)); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, len(before)+len(text)))
	return err
}

// answers fails unless the server answers on each connection.
func answers(t *testing.T, conns ...net.Conn) {
	t.Helper()
	for _, conn := range conns {
		if err := ask(conn, "", "hello", bound); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLoss(t *testing.T) {
	match := func(request []byte) bool { return bytes.Contains(request, []byte("lost")) }
	for name, test := range map[string]struct {
		lose    func(p *Proxy)
		matches bool  // one request only
		got     int64 // by the server
	}{
		"request":   {func(p *Proxy) { p.LoseRequest(match) }, true, 10},
		"reply":     {func(p *Proxy) { p.LoseReply(match) }, true, 14},
		"any reply": {func(p *Proxy) { p.LoseReply(nil) }, false, 9},
		"reset":     {(*Proxy).Reset, false, 5},
	} {
		t.Run(name, func(t *testing.T) {
			p, e := setUp(t)
			conn := dial(t, p)
			answers(t, conn)
			if test.lose(p); test.matches {
				answers(t, conn)
			}
			if err := ask(conn, "", "lost", bound); err == nil {
				t.Error("an answer came")
			}
			if got := e.got.Load(); got != test.got {
				t.Errorf("the server got %d bytes, want %d", got, test.got)
			}
			answers(t, dial(t, p))
		})
	}
}

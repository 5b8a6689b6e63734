package faultproxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// An echo is a server that sends back what it gets, and counts it.
type echo struct {
	addr string
	got  atomic.Int64 // bytes
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
			go e.serve(conn)
		}
	}()
	return e
}

func (e *echo) serve(conn net.Conn) {
	defer conn.Close()
	buffer := make([]byte, 1024)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		e.got.Add(int64(n))
		if _, err := conn.Write(buffer[:n]); err != nil {
			return
		}
	}
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

// ask sends text and returns the error of waiting for it to come back.
func ask(conn net.Conn, text string, within time.Duration) error {
	if _, err := conn.Write([]byte(text)); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, len(text)))
	return err
}

const bound = 10 * time.Second

func setUp(t *testing.T) (*Proxy, *echo) {
	t.Helper()
	e := startEcho(t)
	return Start(t, e.addr), e
}

func TestDelay(t *testing.T) {
	t.Parallel()
	p, _ := setUp(t)
	conn := dial(t, p)
	for _, way := range []Direction{Up, Down} {
		p.Delay(way, 30*time.Millisecond, 40*time.Millisecond)
		began := time.Now()
		if err := ask(conn, "hello", bound); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 30*time.Millisecond {
			t.Errorf("an answer came after %v, want at least 30ms", took)
		}
		p.Delay(way, 0, 0)
	}
}

func TestHold(t *testing.T) {
	t.Parallel()
	for _, way := range []Direction{Up, Down} {
		p, e := setUp(t)
		conn := dial(t, p)
		p.Hold(way)
		if err := ask(conn, "hello", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("while the proxy holds: %v, want no answer", err)
		}
		if got := e.got.Load(); way == Up && got != 0 {
			t.Errorf("%d bytes reached the server through a proxy that holds", got)
		}
		p.Pass(way)
		_ = conn.SetReadDeadline(time.Now().Add(bound)) // It is open.
		if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
			t.Errorf("after the proxy has let pass what it held: %v", err)
		}
	}
}

// The connections on which a request matched are held without the others.
func TestMark(t *testing.T) {
	p, _ := setUp(t)
	p.Mark(func(request []byte) bool { return bytes.Contains(request, []byte("listen")) })
	plain, marked := dial(t, p), dial(t, p)
	for way := range 2 {
		p.HoldMarked(Direction(way))
		if err := ask(plain, "hello", bound); err != nil {
			t.Error("a connection that is not marked:", err)
		}
		if err := ask(marked, "listen", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("one that is, in direction %d: %v", way, err)
		}
		p.PassMarked(Direction(way))
		if err := ask(marked, "", bound); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(marked, make([]byte, len("listen"))); err != nil {
			t.Error("what was held does not come:", err)
		}
	}
}

// New connections lead to the new target.
func TestSetTarget(t *testing.T) {
	p, first := setUp(t)
	second := startEcho(t)
	before := dial(t, p)
	if err := ask(before, "hello", bound); err != nil {
		t.Fatal(err)
	}
	p.SetTarget(second.addr)
	for _, conn := range []net.Conn{before, dial(t, p)} {
		if err := ask(conn, "hello", bound); err != nil {
			t.Fatal(err)
		}
	}
	if first.got.Load() != 10 || second.got.Load() != 5 {
		t.Errorf("%d bytes to the first target and %d to the second", first.got.Load(), second.got.Load())
	}
}

func TestLoseRequest(t *testing.T) {
	t.Parallel()
	p, e := setUp(t)
	conn := dial(t, p)
	p.LoseRequest(func(request []byte) bool { return bytes.Contains(request, []byte("lost")) })
	if err := ask(conn, "kept", bound); err != nil {
		t.Fatalf("a request that does not match: %v", err)
	}
	if err := ask(conn, "lost", bound); err == nil {
		t.Error("the lost request was answered")
	}
	if got := e.got.Load(); got != 4 {
		t.Errorf("the server got %d bytes, want 4", got)
	}
	if err := ask(dial(t, p), "lost", bound); err != nil {
		t.Errorf("the request after the lost one: %v", err)
	}
}

func TestLoseReply(t *testing.T) {
	t.Parallel()
	p, e := setUp(t)
	p.LoseReply(nil)
	if err := ask(dial(t, p), "hello", bound); err == nil {
		t.Error("the lost answer came")
	}
	if got := e.got.Load(); got != 5 {
		t.Errorf("the server got %d bytes, want the request", got)
	}
	if err := ask(dial(t, p), "hello", bound); err != nil {
		t.Errorf("the request after it: %v", err)
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	p, _ := setUp(t)
	conns := []net.Conn{dial(t, p), dial(t, p)}
	for _, conn := range conns {
		if err := ask(conn, "hello", bound); err != nil {
			t.Fatal(err)
		}
	}
	p.Reset()
	for _, conn := range conns {
		if err := ask(conn, "hello", bound); err == nil {
			t.Error("a connection that was cut answers")
		}
	}
	if err := ask(dial(t, p), "hello", bound); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}

// What the proxy has started ends with it, whatever it was doing.
func TestCleanup(t *testing.T) {
	t.Parallel()
	var p *Proxy
	t.Run("busy", func(t *testing.T) {
		e := startEcho(t)
		p = Start(t, e.addr)
		p.Hold(Down)
		if err := ask(dial(t, p), "hello", 20*time.Millisecond); err == nil {
			t.Error("answered while held")
		}
		p.Delay(Up, time.Hour, time.Hour)
		if err := ask(dial(t, p), "hello", 20*time.Millisecond); err == nil {
			t.Error("answered while delayed")
		}
	})
	p.group.Wait()
	if n := p.Connections(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

package command

import (
	"net"
	"net/http"
	"testing"
	"time"
)

// Of more connections than a server takes each is closed at once, until others are: they cost the
// process no file that its locks need.
func TestServerLimitsConnections(t *testing.T) {
	handler := http.NotFoundHandler()
	address, stop, err := new(cli).startServer(t.Context(), "127.0.0.1:0", handler)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(0)
	answers := func() (net.Conn, bool) {
		conn, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")) // fails on one that is closed
		n, _ := conn.Read(make([]byte, 1<<10))
		return conn, n > 0
	}
	var last net.Conn
	for i := range serverMaxConns {
		var ok bool
		if last, ok = answers(); !ok {
			t.Fatalf("connection %d is closed", i)
		}
	}
	if _, ok := answers(); ok {
		t.Error("there is no limit")
	}
	last.Close()
	for began := time.Now(); ; {
		if _, ok := answers(); ok {
			return
		}
		if time.Since(began) > testTimeout {
			t.Fatal("a connection that has ended still counts")
		}
	}
}

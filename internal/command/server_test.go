package command

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/storecheck"
)

// Of more connections than a server takes each is closed at once, until others are: they cost the
// process no file that its locks need.
func TestServerLimitsConnections(t *testing.T) {
	address, stop, err := new(cli).startServer(t.Context(), "127.0.0.1:0", http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	defer stop(0)
	var last net.Conn
	answers := func() bool {
		conn, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")) // fails on one that is closed
		n, _ := conn.Read(make([]byte, 1<<10))
		last = conn
		return n > 0
	}
	for i := range serverMaxConns {
		if !answers() {
			t.Fatalf("connection %d is closed", i)
		}
	}
	admitted := last
	if answers() {
		t.Error("there is no limit")
	}
	admitted.Close()
	storecheck.Eventually(t, "room after a connection has ended", answers)
}

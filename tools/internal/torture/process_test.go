//go:build unix

package torture

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultproxy"
)

// A process and a server can be cut off at the same time: it ends for each when
// it is over for both.
func TestPartition(t *testing.T) {
	p := &process{}
	for range 2 {
		p.proxies = append(p.proxies, faultproxy.Start(t, echo(t)))
	}
	pass := func(n int) bool {
		conn, err := net.Dial("tcp", p.proxies[n].Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // a connection that was just made
		_, err = conn.Read(make([]byte, 1))
		return err == nil
	}
	for _, step := range []struct {
		name          string
		do            func()
		first, second bool
	}{
		{"nothing", func() {}, true, true},
		{"the second server", func() { p.partitionServer(1, 2) }, true, false},
		{"the process, too", func() { p.partition(1) }, false, false},
		{"the server alone again", func() { p.partition(0) }, true, false},
		{"both again", func() { p.partition(3) }, false, false},
		{"the process alone", func() { p.partitionServer(1, 0) }, false, false},
		{"nothing again", func() { p.partition(0) }, true, true},
	} {
		step.do()
		for n, want := range []bool{step.first, step.second} {
			if want {
				for began := time.Now(); !pass(n); {
					if time.Since(began) > 30*time.Second {
						t.Fatalf("%s is cut off: server %d cannot be reached", step.name, n+1)
					}
				}
			} else if pass(n) {
				t.Errorf("%s is cut off: server %d can be reached", step.name, n+1)
			}
		}
	}
}

// echo serves connections by sending back what comes.
func echo(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn) // until the other side is gone
			}()
		}
	}()
	return listener.Addr().String()
}

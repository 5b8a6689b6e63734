//go:build unix

package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// The ports of servers: below those that systems give to outgoing connections,
// so that a port is still free when its server is started again. The bus of a
// Redis Cluster node is busOffset above its port.
const (
	firstPort = 10000
	lastPort  = 21999
	busOffset = 10000
)

// freePort returns a port that nobody listens on, nor on the one of its bus.
func freePort(tb TB) int {
	tb.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if isFree(port) && isFree(port+busOffset) {
			return port
		}
	}
	tb.Fatal("no free port found")
	return 0
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

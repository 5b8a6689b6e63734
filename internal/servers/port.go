//go:build unix

package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// The ports of servers are below those that systems use for outgoing connections, so that a port is
// still free when its server is started again. The bus of a Redis Cluster node is busOffset above
// its port.
//
// A process has a block of ports for itself, and takes them in turn. Else the port of a server that
// was killed could soon be that of another test's server, which the clients, the replicas and the
// Sentinels of the dead server would take for it.
const (
	firstPort = 10000
	lastPort  = 21999
	blockSize = 500
	busOffset = 10000
)

var ports struct {
	sync.Mutex
	reservation net.Listener // on the first port of the block, as long as the process lives
	first, last int          // of the block, and the one that was taken last
}

// freePort returns the port that was taken the longest ago and has no listener, neither on it nor
// on the port of its bus.
func freePort(tb testing.TB) int {
	tb.Helper()
	ports.Lock()
	defer ports.Unlock()
	const blocks = (lastPort + 1 - firstPort) / blockSize
	for _, i := range rand.Perm(blocks) {
		if ports.reservation == nil {
			ports.first = firstPort + i*blockSize
			ports.last = ports.first
			ports.reservation, _ = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", ports.first)) // Another process may have it.
		}
	}
	for range blockSize {
		ports.last = ports.first + (ports.last-ports.first)%(blockSize-1) + 1
		if isPortFree(ports.last) && isPortFree(ports.last+busOffset) {
			return ports.last
		}
	}
	tb.Fatal("no free port found")
	return 0
}

func isPortFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

//go:build unix

package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The ports of servers are below those that systems use for outgoing connections, so that a
// port is still free when its server is started again. The bus of a Redis Cluster node is
// busOffset above its port.
//
// A process has a block of ports for itself, and takes them in turn. Else the port of a
// server that was killed could soon be that of another test's server, which the clients,
// the replicas and the Sentinels of the dead server would take for it.
const (
	firstPort = 10000
	lastPort  = 21999
	blockSize = 500
	busOffset = 10000
)

// A portBlock is a range of ports that no other process uses.
type portBlock struct {
	reservation net.Listener // on the first port, as long as the process lives
	first       int
	lastTaken   int // counted from first
}

var processPorts struct {
	sync.Mutex
	portBlock
}

// freePort returns a port without a listener, neither on it nor on the port of its bus.
func freePort(tb TB) int {
	tb.Helper()
	processPorts.Lock()
	defer processPorts.Unlock()
	if processPorts.reservation == nil {
		var err error
		if processPorts.portBlock, err = reservePortBlock(); err != nil {
			tb.Fatal(err)
		}
	}
	for range blockSize {
		if port := processPorts.nextPort(); isPortFree(port) && isPortFree(port+busOffset) {
			return port
		}
	}
	tb.Fatal("no free port found")
	return 0
}

// reservePortBlock reserves a block that no other process has.
func reservePortBlock() (portBlock, error) {
	const blocks = (lastPort + 1 - firstPort) / blockSize
	for _, i := range rand.Perm(blocks) {
		first := firstPort + i*blockSize
		if reservation, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first)); err == nil {
			return portBlock{reservation: reservation, first: first}, nil
		}
	}
	return portBlock{}, fmt.Errorf("%d other processes have all ports", blocks)
}

// nextPort returns the port that was taken the longest ago.
func (b *portBlock) nextPort() int {
	b.lastTaken = b.lastTaken%(blockSize-1) + 1
	return b.first + b.lastTaken
}

func isPortFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

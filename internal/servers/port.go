//go:build unix

package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The ports of servers: below those that systems give to outgoing connections,
// so that a port is still free when its server is started again. The bus of a
// Redis Cluster node is busOffset above its port.
//
// A process has a block of them for itself, and takes them in turn. Else the port
// of a server that was killed could soon be that of another test's server, which
// the clients, the replicas and the Sentinels of the dead one would take for it.
const (
	firstPort = 10000
	lastPort  = 21999
	blockSize = 500
	busOffset = 10000
)

// A block is a range of ports that no other process takes from.
type block struct {
	mark  net.Listener // on the first port, as long as the process lives
	first int
	taken int // the last that was taken, counted from first
}

var ports struct {
	sync.Mutex
	block
}

// freePort returns a port that nobody listens on, nor on the one of its bus.
func freePort(tb TB) int {
	tb.Helper()
	ports.Lock()
	defer ports.Unlock()
	if ports.mark == nil {
		var err error
		if ports.block, err = claim(); err != nil {
			tb.Fatal(err)
		}
	}
	for range blockSize {
		if port := ports.next(); isFree(port) && isFree(port+busOffset) {
			return port
		}
	}
	tb.Fatal("no free port found")
	return 0
}

// claim takes a block that no process has.
func claim() (block, error) {
	const blocks = (lastPort + 1 - firstPort) / blockSize
	for _, i := range rand.Perm(blocks) {
		first := firstPort + i*blockSize
		if mark, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first)); err == nil {
			return block{mark: mark, first: first}, nil
		}
	}
	return block{}, fmt.Errorf("%d other processes have all ports", blocks)
}

// next returns the port that was taken the longest ago.
func (b *block) next() int {
	b.taken = b.taken%(blockSize-1) + 1
	return b.first + b.taken
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

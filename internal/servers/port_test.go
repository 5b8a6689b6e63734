//go:build unix

package servers

import "testing"

// The port of a server that was killed is not given to another soon, by this
// process or by another.
func TestPortsAreNotTakenOver(t *testing.T) {
	taken := map[int]bool{}
	for range blockSize / 2 {
		port := freePort(t)
		if taken[port] {
			t.Errorf("port %d was given twice", port)
		}
		taken[port] = true
	}
	other, err := reservePortBlock()
	if err != nil {
		t.Fatal(err)
	}
	defer other.reservation.Close()
	for range 2 * blockSize {
		if port := other.nextPort(); taken[port] || port <= other.first || port >= other.first+blockSize {
			t.Fatalf("another process, which has %d ports from %d on, is given %d", blockSize, other.first, port)
		}
	}
}

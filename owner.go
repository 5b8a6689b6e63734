package holdfast

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"io"
	"sync"
)

// An ownerSource makes owner secrets: 128 random bits each. It takes them from
// the system in larger pieces, since a system call for each would be among the
// dearest parts of taking a lock in memory.
type ownerSource struct {
	mu     sync.Mutex
	bits   *bufio.Reader
	secret [16]byte // scratch
}

func newOwnerSource() *ownerSource {
	return &ownerSource{bits: bufio.NewReaderSize(rand.Reader, 1024)}
}

func (s *ownerSource) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.ReadFull(s.bits, s.secret[:]); err != nil {
		panic(err) // crypto/rand never fails
	}
	return hex.EncodeToString(s.secret[:])
}

package holdfast

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"io"
	"sync"
)

// An ownerSource makes owner secrets: 128 random bits each. It reads them from the system in
// larger pieces, since a system call for each would be among the most expensive parts of taking a
// lock in memory.
type ownerSource struct {
	mu     sync.Mutex
	random *bufio.Reader
	secret [16]byte // scratch
}

func newOwnerSource() *ownerSource {
	return &ownerSource{random: bufio.NewReaderSize(rand.Reader, 1024)}
}

func (s *ownerSource) nextOwner() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.ReadFull(s.random, s.secret[:]); err != nil {
		panic(err) // crypto/rand never fails
	}
	return hex.EncodeToString(s.secret[:])
}

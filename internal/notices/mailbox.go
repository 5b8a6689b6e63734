package notices

import (
	"maps"
	"strconv"
	"sync"
	"time"
)

// A Mailbox is the Registry of a store whose notices come as messages. A message names an entry by
// its tag, which tells nothing of the secret of its owner.
type Mailbox struct {
	Registry
	Tag func(name, owner string) string

	mu      sync.Mutex
	entries map[string]entry // that may be notified, by tag
	purgeAt int              // the number of entries at which those that are over are deleted
}

type entry struct {
	name, owner string
	until       time.Time // when it is over at the latest
}

// Expect has the notices of an entry passed on for d and a minute. Without a function to pass them
// to, as at a node of a quorum, that is not worth its cost.
func (m *Mailbox) Expect(name, owner string, d time.Duration) {
	if m.None() {
		return
	}
	now, tag := time.Now(), m.Tag(name, owner)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries = map[string]entry{}
	}
	m.entries[tag] = entry{name, owner, now.Add(d + time.Minute)} // A late notice does no harm.
	if len(m.entries) > m.purgeAt {
		maps.DeleteFunc(m.entries, func(_ string, e entry) bool { return e.until.Before(now) })
		m.purgeAt = max(1000, 2*len(m.entries))
	}
}

// Forget ends what Expect began.
func (m *Mailbox) Forget(name, owner string) {
	tag := m.Tag(name, owner)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, tag)
}

// Receive passes on a message: the tag of an entry, and a token or 0 as text. Others may be able to
// send one, so it is no more than a reason to look: what concerns no entry is ignored, and so is a
// number that is no token.
func (m *Mailbox) Receive(tag, number string) {
	token, err := strconv.ParseInt(number, 10, 64)
	m.mu.Lock()
	e, expected := m.entries[tag]
	m.mu.Unlock()
	if err == nil && token >= 0 && expected {
		m.Send(e.name, e.owner, token)
	}
}

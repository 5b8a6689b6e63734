package notices

import (
	"maps"
	"slices"
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
	entries map[entry]time.Time // that may be notified, and when each is over at the latest
	fresh   []entry             // those that have no tag yet: most end before a message comes
	tags    map[string]entry
	purgeAt int // the number of fresh entries and tags at which those of no entry are deleted
}

type entry struct{ name, owner string }

// Expect has the notices of an entry passed on for d and a minute. Without a function to pass them
// to, as at a node of a quorum, that is not worth its cost.
func (m *Mailbox) Expect(name, owner string, d time.Duration) {
	if m.None() {
		return
	}
	now, e := time.Now(), entry{name, owner}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries == nil {
		m.entries, m.tags = map[entry]time.Time{}, map[string]entry{}
	}
	if m.entries[e].IsZero() {
		m.fresh = append(m.fresh, e)
	}
	m.entries[e] = now.Add(d + time.Minute) // A late notice does no harm.
	if len(m.fresh)+len(m.tags) > m.purgeAt {
		maps.DeleteFunc(m.entries, func(_ entry, until time.Time) bool { return until.Before(now) })
		m.fresh = slices.DeleteFunc(m.fresh, func(e entry) bool { return m.entries[e].IsZero() })
		maps.DeleteFunc(m.tags, func(_ string, e entry) bool { return m.entries[e].IsZero() })
		m.purgeAt = max(1000, 2*len(m.entries))
	}
}

// Forget ends what Expect began.
func (m *Mailbox) Forget(name, owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, entry{name, owner})
}

// Receive passes on a message: the tag of an entry, and a token or 0 as text. Others may be able to
// send one, so it is no more than a reason to look: what concerns no entry is ignored, and so is a
// number that is no token.
func (m *Mailbox) Receive(tag, number string) {
	token, err := strconv.ParseInt(number, 10, 64)
	m.mu.Lock()
	if _, ok := m.tags[tag]; !ok {
		for _, e := range m.fresh {
			if !m.entries[e].IsZero() {
				m.tags[m.Tag(e.name, e.owner)] = e
			}
		}
		m.fresh = nil
	}
	e := m.tags[tag]
	expected := !m.entries[e].IsZero()
	m.mu.Unlock()
	if err == nil && token >= 0 && expected {
		m.Send(e.name, e.owner, token)
	}
}

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
	fresh   map[entry]time.Time // those since the last message, and when they are over at the latest
	tags    map[entry]string    // those that were there at a message
	tagged  map[string]taggedEntry
	purgeAt int // the number of entries at which those that are over are deleted
}

type entry struct{ name, owner string }

type taggedEntry struct {
	entry
	until time.Time
}

// Expect has the notices of an entry passed on for d and a minute. It does nothing if there is no
// function to pass them to, as at a node of a quorum. The tag of an entry is computed when the next
// message comes: it costs more than all else here, and most entries have ended before that.
func (m *Mailbox) Expect(name, owner string, d time.Duration) {
	if m.None() {
		return
	}
	now := time.Now()
	e, until := entry{name, owner}, now.Add(d+time.Minute) // A late notice does no harm.
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fresh == nil {
		m.fresh, m.tags, m.tagged = map[entry]time.Time{}, map[entry]string{}, map[string]taggedEntry{}
	}
	if tag, ok := m.tags[e]; !ok && until.After(m.fresh[e]) {
		m.fresh[e] = until
	} else if ok && until.After(m.tagged[tag].until) {
		m.tagged[tag] = taggedEntry{e, until}
	}
	if len(m.fresh)+len(m.tagged) > m.purgeAt {
		maps.DeleteFunc(m.fresh, func(_ entry, until time.Time) bool { return until.Before(now) })
		maps.DeleteFunc(m.tags, func(_ entry, tag string) bool { return m.tagged[tag].until.Before(now) })
		maps.DeleteFunc(m.tagged, func(_ string, e taggedEntry) bool { return e.until.Before(now) })
		m.purgeAt = max(1000, 2*(len(m.fresh)+len(m.tagged)))
	}
}

// Forget ends what Expect began.
func (m *Mailbox) Forget(name, owner string) {
	e := entry{name, owner}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.fresh, e)
	delete(m.tagged, m.tags[e])
	delete(m.tags, e)
}

// Receive passes on a message: the tag of an entry, and a token or 0 as text. Others may be able to
// send one, so it is no more than a reason to look: what concerns no entry is ignored, and so is a
// number that is no token.
func (m *Mailbox) Receive(tag, number string) {
	token, err := strconv.ParseInt(number, 10, 64)
	m.mu.Lock()
	for e, until := range m.fresh {
		tag := m.Tag(e.name, e.owner)
		m.tags[e], m.tagged[tag] = tag, taggedEntry{e, until}
	}
	clear(m.fresh)
	e, expected := m.tagged[tag]
	m.mu.Unlock()
	if err == nil && token >= 0 && expected {
		m.Send(e.name, e.owner, token)
	}
}

package drivertest

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A notice is one call of the function that was registered with Notify.
type notice struct {
	name, owner string
	token       int64
}

// A noticeLog has the notices of a store in the order in which they came.
type noticeLog struct {
	mu      sync.Mutex
	notices []notice
	changed chan struct{} // closed by the next notice
}

// listen returns a log of the notices of the store until stop is called.
func listen(n driver.Notifier) (log *noticeLog, stop func()) {
	log = &noticeLog{changed: make(chan struct{})}
	return log, n.Notify(func(name, owner string, token int64) {
		log.mu.Lock()
		defer log.mu.Unlock()
		log.notices = append(log.notices, notice{name, owner, token})
		close(log.changed)
		log.changed = make(chan struct{})
	})
}

// since returns the notices after the first n, and a channel that the next notice closes.
func (l *noticeLog) since(n int) ([]notice, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.notices[n:len(l.notices):len(l.notices)], l.changed
}

// count returns how many notices have come.
func (l *noticeLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.notices)
}

// nextNotice returns the next notice that concerns the entry, and false if there is none until the
// channel has a value.
func (e *entry) nextNotice(timeout <-chan time.Time) (notice, bool) {
	for {
		notices, changed := e.store.log.since(e.seen)
		for _, n := range notices {
			e.seen++
			if (n.name == e.Name || n.name == "") && (n.owner == e.Owner || n.owner == "") {
				return n, true
			}
		}
		select {
		case <-changed:
		case <-timeout:
			return notice{}, false
		}
	}
}

// expectNotice checks that a notice comes that concerns the entry.
func (e *entry) expectNotice(why string) notice {
	e.store.run.Helper()
	n, ok := e.nextNotice(time.After(e.store.run.tolerance()))
	if !ok {
		e.store.run.Errorf("no notice came for the entry of %q, %s", e.Name, why)
	}
	return n
}

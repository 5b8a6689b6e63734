package filestore

import (
	"slices"
	"syscall"
)

// setHolderSessions makes ids the sessions that n watches: their end is notified to the waiters of
// n. "" means none. It reports whether n watches one that it has not watched before.
func (w *watcher) setHolderSessions(s *engine, n *watchedName, ids []string) (added bool) {
	n.holders = slices.DeleteFunc(n.holders, func(h *watchedSession) bool {
		obsolete := !slices.Contains(ids, h.id)
		if obsolete {
			w.dropHolderSession(n, h)
		}
		return obsolete
	})
	for _, id := range ids {
		if id == "" || slices.ContainsFunc(n.holders, func(h *watchedSession) bool { return h.id == id }) {
			continue
		}
		h := w.sessionsByID[id]
		if h == nil {
			h = w.watchSession(s, id)
		}
		if h != nil {
			n.holders = append(n.holders, h)
			h.names[n] = struct{}{}
			added = true
		}
	}
	return added
}

// watchSession returns nil if the session cannot be watched. A waiter then notices the end of its
// holds when they expire, or when a later attempt finds the session dead.
func (w *watcher) watchSession(s *engine, id string) *watchedSession {
	folder, err := s.currentFolder(false)
	if err != nil || folder.sessions == nil {
		return nil
	}
	f, err := folder.sessions.Open(id)
	if err != nil {
		return nil
	}
	defer f.Close()
	wd, err := w.queue.addWatch(f, syscall.IN_CLOSE_WRITE)
	if err != nil {
		return nil
	}
	h := &watchedSession{id: id, wd: wd, names: map[*watchedName]struct{}{}}
	w.sessionsByID[id] = h
	w.sessionsByWatch[wd] = h
	return h
}

// dropHolderSession ends that n watches a session.
func (w *watcher) dropHolderSession(n *watchedName, h *watchedSession) {
	delete(h.names, n)
	if len(h.names) == 0 {
		delete(w.sessionsByID, h.id)
		delete(w.sessionsByWatch, h.wd)
		w.queue.removeWatch(h.wd)
	}
}

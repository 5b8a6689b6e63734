package filestore

import (
	"os"
	"syscall"
)

// setHolderSession makes id the session that n watches: its end is notified to the waiters of n. ""
// means none.
func (w *watcher) setHolderSession(s *Store, n *watchedName, id string) {
	if n.holder != nil && n.holder.id == id {
		return
	}
	w.dropHolderSession(n)
	if id == "" {
		return
	}
	h := w.sessionsByID[id]
	if h == nil {
		h = w.watchSession(s, id)
	}
	if h != nil {
		n.holder = h
		h.names[n] = struct{}{}
	}
}

// watchSession returns nil if the session cannot be watched. A waiter then notices the end of its
// holds when they expire, or when a later attempt finds the session dead.
func (w *watcher) watchSession(s *Store, id string) *watchedSession {
	folder, err := s.retainFolder(false)
	if err == nil {
		defer folder.release()
	}
	if err != nil || folder.sessions == nil {
		return nil
	}
	f, err := folder.sessions.open(id, os.O_RDONLY, 0)
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

func (w *watcher) dropHolderSession(n *watchedName) {
	h := n.holder
	if h == nil {
		return
	}
	n.holder = nil
	delete(h.names, n)
	if len(h.names) == 0 {
		delete(w.sessionsByID, h.id)
		delete(w.sessionsByWatch, h.wd)
		w.queue.removeWatch(h.wd)
	}
}

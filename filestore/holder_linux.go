package filestore

import "syscall"

// setHolder makes id the session whose end is a signal for n, "" for none.
func (w *watcher) setHolder(s *Store, n *watchedName, id string) {
	if n.holder != nil && n.holder.id == id {
		return
	}
	w.dropHolder(n)
	if id == "" {
		return
	}
	h := w.holders[id]
	if h == nil {
		h = w.watchSession(s, id)
	}
	if h != nil {
		n.holder = h
		h.names[n] = struct{}{}
	}
}

// watchSession returns nil if the session cannot be watched: then its holds end
// for a waiter when they expire or are found dead by a later attempt.
func (w *watcher) watchSession(s *Store, id string) *watchedSession {
	wd, err := w.queue.add(s.sessionPath(id), syscall.IN_CLOSE_WRITE)
	if err != nil {
		return nil
	}
	h := &watchedSession{id: id, wd: wd, names: map[*watchedName]struct{}{}}
	w.holders[id] = h
	w.sessions[wd] = h
	return h
}

func (w *watcher) dropHolder(n *watchedName) {
	h := n.holder
	if h == nil {
		return
	}
	n.holder = nil
	delete(h.names, n)
	if len(h.names) == 0 {
		delete(w.holders, h.id)
		delete(w.sessions, h.wd)
		w.queue.remove(h.wd)
	}
}

// forget ends what is watched for n if nobody waits for it any more.
func (w *watcher) forget(n *watchedName) {
	if w.queue == nil || len(n.signals) > 0 || w.names[n.name] != n {
		return
	}
	delete(w.names, n.name)
	w.dropHolder(n)
	if n.wd != 0 {
		delete(w.records, n.wd)
		w.queue.remove(n.wd)
	}
}

// signal wakes those who wait for n. It never blocks.
func (n *watchedName) signal() {
	for signal := range n.signals {
		select {
		case signal <- struct{}{}:
		default:
		}
	}
}

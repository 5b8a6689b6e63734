package holdfast

import "time"

// logWaiting logs that an operation begins to wait, and for which holder.
func (a *acquireOp) logWaiting(held *HeldError) {
	if a.c.log != nil {
		a.c.log.DebugContext(a.ctx, "waiting for lock", "name", a.name,
			"holder", held.Record.Holder, "since", held.Record.Since, "self", held.Self)
	}
}

// A selfWait detects that an operation waits in the queue behind a lease of its own Client for
// longer than a request to the store may take, as one does that waits for itself. It does not
// refer to the operation, so that the operation need not be on the heap.
type selfWait struct {
	timer *time.Timer // nil if the Client has no Logger
	lease *lease      // that held the name when the timer was started, nil if none
}

// newSelfWait starts the timer for the lease that holds the name. The caller holds c.mu.
func (c *Client) newSelfWait(q *nameQueue) selfWait {
	if c.log == nil {
		return selfWait{}
	}
	return selfWait{timer: time.NewTimer(c.requestTimeout), lease: q.lease}
}

// overdue returns a channel that receives a value when it is time for warnIfSameLease.
func (w *selfWait) overdue() <-chan time.Time {
	if w.timer == nil {
		return nil
	}
	return w.timer.C
}

// warnIfSameLease logs that the wait is long if the same lease still holds the name. It warns
// once for each lease.
func (w *selfWait) warnIfSameLease(a *acquireOp, q *nameQueue) {
	c := a.c
	c.mu.Lock()
	before, now := w.lease, q.lease
	w.lease = now
	due := now != nil && now == before && !now.selfWaitWarned
	if due {
		now.selfWaitWarned = true
	}
	c.mu.Unlock()
	w.timer.Reset(c.requestTimeout)
	if due {
		a.warnSelfWait(now.currentRecord())
	}
}

// warnSelfWait logs that the operation waits for its own Client.
func (a *acquireOp) warnSelfWait(held Record) {
	a.c.log.WarnContext(a.ctx, "waiting for a lock that this very client holds; if its holder waits for this, it waits for ever",
		"name", a.name, "holder", held.Holder, "since", held.Since, "waited", a.c.clock.now()-a.startedAt)
}

// warnAdopted logs, once for each lease, that the operation, which is the head of its queue,
// waits for long for a lease that the Client has adopted.
func (a *acquireOp) warnAdopted(held Record) {
	c := a.c
	if c.log == nil || a.singleAttempt || c.clock.now()-a.startedAt <= c.requestTimeout {
		return
	}
	c.mu.Lock()
	l := c.adoptedLease(a.fullName, held.Token)
	due := l != nil && !l.selfWaitWarned
	if due {
		l.selfWaitWarned = true
	}
	c.mu.Unlock()
	if due {
		a.warnSelfWait(held)
	}
}

func (w *selfWait) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

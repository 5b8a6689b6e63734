package supervise

import (
	"math"
	"time"
)

// orphanGrace is how long the processes that a command leaves behind may go on, so that a "tee"
// at the end of a pipe can write its last line.
const orphanGrace = 200 * time.Millisecond

// A watchdog watches over a command while it runs under its lease.
type watchdog struct {
	supervisor *Supervisor
	cmd        *Command
	lease      Lease
	tree       *processTree
	timer      *bootTimer
	result     Result

	// deadline is that of the lease when last read. leaseEnd is the same on the clock that goes
	// on while the machine is suspended.
	deadline time.Time
	leaseEnd instant

	// termAt and killAt are when SIGTERM and SIGKILL are due for reasons other than the end of
	// the lease.
	termAt, killAt instant

	exited      bool // the command has ended
	lost        bool // the lease is lost, or counts as lost; its deadline is not read any more
	termSent    bool // the tree has had SIGTERM, or is being killed
	killStarted bool // the tree is being killed
}

// eventLoop returns when no process of the tree is left.
func (w *watchdog) eventLoop() Result {
	lost := w.lease.Context().Done()
	parentGone := w.supervisor.ctx.Done() // signals do not end it now: they go to the command
	var empty <-chan struct{}             // nil until the command has ended
	for {
		w.reschedule()
		select {
		case end := <-w.tree.exited:
			w.result.Code = end.code
			w.supervisor.parent.reportEnd(end.signal)
			w.checkParent()
			w.drainOrphans()
			empty = w.tree.empty
		case <-empty:
			return w.result
		case <-parentGone:
			parentGone = nil
			w.result.Abandoned = true
			w.tree.startKill()
		case <-lost:
			lost = nil
			w.onLeaseLost()
		case <-w.timer.c:
		}
		w.sendDueSignals()
	}
}

// reschedule reads the lease, and sets the timer for the next action and the deadlines of the
// parent. It returns false if the lease is lost, or an action is due.
func (w *watchdog) reschedule() bool {
	if d := w.lease.Deadline(); !w.lost && !d.Equal(w.deadline) {
		w.deadline, w.leaseEnd = d, instantOf(d)
	}
	term, kill := w.signalTimes()
	// The lease is read again when half of the time is over: the parent then learns of a renewal
	// long before it would act.
	at := bootNow()
	next := min(term, kill)
	w.timer.schedule(min(next, at.add(max(time.Duration(next-at)/2, Margin/5))))
	// The parent enforces only the end of the lease, and a little later than this process.
	leaseTerm, leaseKill := w.leaseSignalTimes()
	if w.lost {
		leaseTerm = never // this process or the parent has sent it
	}
	w.supervisor.parent.setDeadlines(leaseTerm.add(Margin/2), leaseKill.add(Margin/2))
	return w.lease.Context().Err() == nil && at < next
}

// signalTimes returns when SIGTERM and SIGKILL are due, for whatever reason. What was sent is never
// due again.
func (w *watchdog) signalTimes() (term, kill instant) {
	term, kill = w.leaseSignalTimes()
	term, kill = min(w.termAt, term), min(w.killAt, kill)
	if w.termSent {
		term = never
	}
	if w.killStarted {
		kill = never
	}
	return term, kill
}

// leaseSignalTimes returns when SIGTERM and SIGKILL are due because of the lease.
func (w *watchdog) leaseSignalTimes() (term, kill instant) {
	if w.cmd.OnLost == Ignore {
		return never, never
	}
	kill = w.leaseEnd.add(-Margin)
	term = kill.add(-w.cmd.KillAfter)
	if w.cmd.OnLost == Term {
		kill = never
	}
	return term, kill
}

// sendDueSignals sends the signals that are due.
func (w *watchdog) sendDueSignals() {
	w.checkParent()
	at := bootNow()
	if term, _ := w.leaseSignalTimes(); term <= at {
		w.markLost()
	}
	term, kill := w.signalTimes()
	switch {
	case kill <= at:
		w.tree.startKill()
		w.termSent, w.killStarted = true, true
	case term <= at:
		w.tree.terminate()
		w.termSent = true
	}
}

// checkParent finds that the parent has sent SIGTERM because this process hung.
func (w *watchdog) checkParent() {
	if w.supervisor.parent.hasActed() {
		w.markLost()
		w.termSent = true
	}
}

// onLeaseLost is called when the lease is lost for good, because its time is over or because it
// was broken.
func (w *watchdog) onLeaseLost() {
	w.markLost()
	if w.cmd.OnLost == Ignore {
		return
	}
	at := bootNow()
	w.termAt = at
	if w.cmd.OnLost == Kill {
		w.killAt = min(w.killAt, at.add(w.cmd.KillAfter))
	}
}

// markLost is final, even if the lease is renewed later: the command gets a signal to end at once.
func (w *watchdog) markLost() {
	if w.lost {
		return
	}
	w.lost = true
	w.result.Stopped = !w.exited && w.cmd.OnLost != Ignore
}

// drainOrphans sets when the processes that the command has left behind, if any, get SIGTERM
// and SIGKILL. All of them must end before the lease is given back.
func (w *watchdog) drainOrphans() {
	w.exited = true
	w.termAt = min(w.termAt, bootNow().add(orphanGrace))
	w.killAt = min(w.killAt, w.termAt.add(w.cmd.KillAfter))
}

// An instant is a moment in nanoseconds on a clock that all processes of the machine share,
// that cannot be set, and that goes on while the machine is suspended. Go's own monotonic clock
// stands still then.
type instant int64

// never is later than every other instant.
const never instant = math.MaxInt64

// instantOf converts a moment of Go's clock. The result is right only if the machine has not
// been suspended since t was computed.
func instantOf(t time.Time) instant {
	return bootNow().add(time.Until(t))
}

// add returns the instant d later, and never if an instant cannot represent it.
func (i instant) add(d time.Duration) instant {
	if i == never || d > 0 && i > never-instant(d) {
		return never
	}
	return i + instant(d)
}

package supervise

import "time"

// linger is for how long what a command leaves behind may go on, so that a
// "tee" at the end of a pipe can write its last line.
const linger = 200 * time.Millisecond

// A guard watches over a command while it runs under its lease.
type guard struct {
	keeper *Keeper
	cmd    *Command
	lease  Lease
	tree   *tree
	alarm  *alarm
	result Result

	// deadline is that of the lease when last looked at, end the same on the
	// clock that goes on during a suspend.
	deadline time.Time
	end      instant

	// term and kill are when SIGTERM and SIGKILL are due for reasons other than
	// that the lease runs out.
	term, kill instant

	// exited: the command has ended. lost: the lease is or counts as lost, and
	// its deadline is not looked at any more. termed: SIGTERM was sent.
	exited, lost, termed bool
}

func newGuard(k *Keeper, cmd *Command, lease Lease, a *alarm) *guard {
	return &guard{keeper: k, cmd: cmd, lease: lease, alarm: a, term: never, kill: never}
}

// watch returns when nothing is left of the tree.
func (g *guard) watch() Result {
	lost, gone := g.lease.Context().Done(), g.keeper.gone
	var empty <-chan struct{} // nil until the command has ended
	for {
		g.plan()
		select {
		case g.result.Code = <-g.tree.exited:
			g.leaveBehind()
			empty = g.tree.empty
		case <-empty:
			return g.result
		case sig := <-g.keeper.signals:
			g.keeper.line.pass(g.tree, sig)
		case <-gone:
			gone = nil
			g.result.Abandoned = true
			g.tree.kill()
		case <-lost:
			lost = nil
			g.lose()
		case <-g.keeper.renewed:
		case <-g.alarm.c:
		}
		g.act()
	}
}

// plan looks at the lease, sets the alarm for what is to be done next, and lets
// the front know when to step in. It reports whether all of that is still to come.
func (g *guard) plan() bool {
	if !g.lost && g.keeper.line.overruled() {
		g.lose()
	}
	if d := g.lease.Deadline(); !g.lost && !d.Equal(g.deadline) {
		g.deadline, g.end = d, instantOf(d)
	}
	term, kill := g.due()
	if g.termed {
		term = never
	}
	g.alarm.set(min(term, kill))
	// The front minds the lease alone, and a little later than we do.
	leaseTerm, leaseKill := g.leaseEnds()
	if g.lost {
		leaseTerm = never // one of us has sent it
	}
	g.keeper.line.plan(leaseTerm.add(Margin/2), leaseKill.add(Margin/2))
	return g.lease.Context().Err() == nil && now() < min(term, kill)
}

// due is when SIGTERM and SIGKILL are to be sent, for whatever reason.
func (g *guard) due() (term, kill instant) {
	term, kill = g.leaseEnds()
	return min(g.term, term), min(g.kill, kill)
}

// leaseEnds is when SIGTERM and SIGKILL are to be sent because of the lease.
func (g *guard) leaseEnds() (term, kill instant) {
	if g.cmd.OnLost == Ignore {
		return never, never
	}
	kill = g.end.add(-Margin)
	term = kill.add(-g.cmd.KillAfter)
	if g.cmd.OnLost == Term {
		kill = never
	}
	return term, kill
}

// act sends the signals that are due.
func (g *guard) act() {
	at := now()
	if term, _ := g.leaseEnds(); term <= at {
		g.countAsLost()
	}
	term, kill := g.due()
	switch {
	case kill <= at:
		g.tree.kill()
		g.termed = true
	case term <= at && !g.termed:
		g.tree.terminate()
		g.termed = true
	}
}

// lose is called when the lease is lost for good, be it that its time is over
// or that somebody has broken it.
func (g *guard) lose() {
	g.countAsLost()
	if g.cmd.OnLost == Ignore {
		return
	}
	at := now()
	g.term = at
	if g.cmd.OnLost == Kill {
		g.kill = min(g.kill, at.add(g.cmd.KillAfter))
	}
}

// countAsLost is final: the command has been told to end, or will be at once, and
// a renewal that comes after all cannot take that back.
func (g *guard) countAsLost() {
	if g.lost {
		return
	}
	g.lost = true
	g.result.Lost = time.Now()
	g.result.Stopped = !g.exited && g.cmd.OnLost != Ignore
}

// leaveBehind sees to what the command has left behind, if anything: all of it
// is to end before the lease is given back.
func (g *guard) leaveBehind() {
	g.exited = true
	g.term = min(g.term, now().add(linger))
	g.kill = min(g.kill, g.term.add(g.cmd.KillAfter))
}

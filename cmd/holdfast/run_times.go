package main

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/supervise"
)

// maxKillAfter is the default of --kill-after where the TTL leaves room for it; elsewhere the
// default is a sixth of the TTL.
const maxKillAfter = 5 * time.Second

// checkTimes sets --kill-after if it is not given, and refuses times that leave no room for
// stopping the command.
func (r *runCommand) checkTimes(killAfterGiven bool) error {
	if r.killAfter < 0 {
		return usageError(fmt.Errorf("--kill-after %v is negative", r.killAfter), "--kill-after 5s")
	}
	if !killAfterGiven {
		r.killAfter = max(0, min(maxKillAfter, r.ttl/6))
	}
	if r.onLost == lossPolicy(supervise.Ignore) {
		return nil
	}
	if least := r.minimumTTL(killAfterGiven); r.ttl < least {
		return usageError(fmt.Errorf("a TTL of %v is too short: if the lock cannot be renewed, the command must have got "+
			"SIGTERM and, %v later, SIGKILL within it", r.ttl, r.killAfter), fmt.Sprintf("--ttl %v", least))
	}
	if least := r.killAfter + 2*supervise.Margin; r.maxHold > 0 && r.maxHold < least {
		return usageError(fmt.Errorf("a --max-hold of %v is too short: the command must have got SIGTERM and, %v later, "+
			"SIGKILL within it", r.maxHold, r.killAfter), fmt.Sprintf("--max-hold %v", least))
	}
	return nil
}

// minimumTTL returns the shortest TTL that leaves time for stopping the command when the
// renewal at a third of the TTL has failed. Like package holdfast, it allows 1% and 2 ms for
// clocks that differ.
func (r *runCommand) minimumTTL(killAfterGiven bool) time.Duration {
	share := 0.99 - 1.0/3
	fixed := supervise.Margin + 2*time.Millisecond
	if killAfterGiven {
		fixed += r.killAfter
	} else {
		share -= 1.0 / 6
	}
	const step = 10 * time.Millisecond
	return (time.Duration(float64(fixed)/share) + step).Truncate(step)
}

package command

import (
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/servers"
)

func init() {
	faultCases = append(faultCases, faultCase{name: "clock set", inject: func(r *trial) {
		for _, hours := range []time.Duration{1, -1} {
			for _, pid := range []int{r.parentPID, r.supervisorPID} {
				servers.SetWallClock(r.t, pid, hours*time.Hour)
			}
			r.sleepTTL()
		}
		r.sendSignal(r.supervisorPID, syscall.SIGKILL)
	}})
}

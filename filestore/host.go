package filestore

import (
	"os"
	"time"
)

// A host holds the store's view of the machine: its boot, its clocks, and the way to flush a file.
// Tests use a host of their own to step its clocks, reboot it and cut its power.
type host struct {
	// boot differs after every boot.
	boot string

	// uptime is the time since the boot, suspension included. It never steps.
	uptime func() time.Duration

	// wall is the time of day, which may step in either direction.
	wall func() time.Time

	// flush makes the contents of a file survive a power loss.
	flush func(*os.File) error
}

// frozen returns h with an uptime that stands still. It is used for a look at many holds, since a
// reading of the clock is a system call.
func (h *host) frozen() *host {
	now, still := h.uptime(), *h
	still.uptime = func() time.Duration { return now }
	return &still
}

package filestore

import (
	"os"
	"time"
)

// A host is what the store knows of the machine it runs on. Tests put one of
// their own in its place, to step its clocks, reboot it and cut its power.
type host struct {
	// boot is different after every boot.
	boot string

	// uptime is the time since the boot, suspension included. It never steps.
	uptime func() time.Duration

	// wall is the time of day, which may step in either direction.
	wall func() time.Time

	// flush makes the contents of a file outlast a power loss.
	flush func(*os.File) error
}

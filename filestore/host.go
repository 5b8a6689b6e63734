package filestore

import (
	"os"
	"time"
)

// A host is the store's view of the machine. Tests use one of their own to step its clocks, reboot
// it and cut its power.
type host struct {
	boot   string               // differs after every boot, and in some containers
	uptime func() time.Duration // since the boot, suspension included; the same in all containers
	wall   func() time.Time     // the time of day, which may step in either direction
	flush  func(*os.File) error // makes a file survive a power loss
}

// A bootMark tells in which boot a file was written.
type bootMark struct {
	Boot  string `json:"boot"`
	Began int64  `json:"boot_began_ms"` // by the wall clock, since 1970
}

// compare returns the mark of this boot, and whether m, of a file that was written at a time of
// day, is of this boot. LXC, Incus and systemd-nspawn give each container a boot id of its own.
// Such containers agree on when the boot began, which is another time after a reboot. On a host
// whose clock begins anew at each boot, as without a battery, the file of an earlier one was
// written at a time to come.
func (h *host) compare(m bootMark, written time.Time) (this bootMark, isSame bool) {
	const same = 10 * time.Second
	wall := h.wall()
	this = bootMark{h.boot, wall.Add(-h.uptime()).UnixMilli()}
	apart := time.Duration(this.Began-m.Began) * time.Millisecond
	return this, m.Boot == h.boot || apart.Abs() < same && written.Before(wall.Add(same))
}

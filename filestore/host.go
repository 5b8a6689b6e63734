package filestore

import (
	"os"
	"time"
)

// A host is the store's view of the machine: its boot, its clocks, and the way to flush a file.
// Tests use one of their own to step its clocks, reboot it and cut its power.
type host struct {
	// boot differs after every boot, and in some containers.
	boot string

	// uptime is the time since the boot, suspension included. It never steps, and it is the same in
	// all containers of the host.
	uptime func() time.Duration

	// wall is the time of day, which may step in either direction.
	wall func() time.Time

	// flush makes the contents of a file survive a power loss.
	flush func(*os.File) error
}

// A bootMark tells in which boot a file was written.
type bootMark struct {
	boot string

	// began is when the boot began, by the wall clock, in milliseconds since 1970.
	began int64
}

// sameBegin is how near to each other two boots begin that are one.
const sameBegin = 10 * time.Second

// isOtherBoot reports whether a file that was written at a time of day was so in another boot. A
// time to come is that of an earlier boot on a host whose clock begins anew at each boot, as without
// a battery.
func (h *host) isOtherBoot(written time.Time) bool {
	now := h.wall()
	return written.Before(now.Add(-h.uptime()-sameBegin)) || written.After(now.Add(sameBegin))
}

func (h *host) bootMark() bootMark {
	return bootMark{boot: h.boot, began: h.wall().Add(-h.uptime()).UnixMilli()}
}

// isThisBoot reports whether m, of a file that was written at a time of day, is of this boot. LXC,
// Incus and systemd-nspawn give each container a boot id of its own. Such containers agree on when
// the boot began, which is another time after a reboot.
func (h *host) isThisBoot(m bootMark, written time.Time) bool {
	if m.boot == h.boot {
		return true
	}
	return !h.isOtherBoot(written) && h.bootMark().apart(m) < sameBegin
}

// apart returns how far from each other two boots have begun.
func (m bootMark) apart(other bootMark) time.Duration {
	d := time.Duration(m.began-other.began) * time.Millisecond
	return max(d, -d)
}

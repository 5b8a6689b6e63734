//go:build linux || darwin

package supervise

import "golang.org/x/sys/unix"

// A terminal is the one that controls our session.
type terminal struct{ fd int }

// controllingTerminal returns nil if there is none, as under cron.
func controllingTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd}
}

// foreground reports whether we are in the group that gets the signals of the
// keyboard.
func (t *terminal) foreground() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// orphaned reports whether nobody in our session looks after the jobs of our
// process group, as when a container or ssh starts us right on a terminal. The
// kernel then does not stop anybody in the group by Ctrl-Z, since nobody would
// wake him.
func orphaned() bool {
	session, _ := unix.Getsid(0)
	for pid := unix.Getppid(); pid != 0; pid = parentOf(pid) {
		if sid, err := unix.Getsid(pid); err != nil || sid != session {
			return true
		}
		if group, err := unix.Getpgid(pid); err != nil || group != unix.Getpgrp() {
			return err != nil
		}
	}
	return true
}

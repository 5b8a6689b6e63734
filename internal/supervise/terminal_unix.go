//go:build linux || darwin

package supervise

import "golang.org/x/sys/unix"

// A terminal is the controlling terminal of the session.
type terminal struct{ fd int }

// controllingTerminal returns nil if there is none, as under cron.
func controllingTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd}
}

// foreground reports whether this process is in the group that gets the signals of the
// keyboard.
func (t *terminal) foreground() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// inOrphanedGroup reports whether no process of the session looks after the jobs of this
// process group, as when a container or ssh starts the program directly on a terminal. The
// kernel then stops no process of the group at Ctrl-Z, since no process would continue it.
func inOrphanedGroup() bool {
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

//go:build unix && !linux

package servers

import "os/exec"

// startOwned starts a process. On these systems it outlives this one if that is killed.
func startOwned(cmd *exec.Cmd) error { return cmd.Start() }

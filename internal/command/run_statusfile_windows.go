package command

import "io/fs"

// allowTerminalOutput does nothing: Windows stops no process for writing.
func allowTerminalOutput() (restore func()) { return func() {} }

// checkLinkOwner returns nil: only an administrator can create a link.
func checkLinkOwner(string, string, fs.FileInfo) error { return nil }

func isInherited(string) bool { return true }

func (f statusFile) noFollowFlag() int { return 0 }

package supervise

// setProcessName does nothing: on macOS a process is named after its program.
func setProcessName() {}

package supervise

// rename has nothing to do where a process is named after its program.
func rename() {}

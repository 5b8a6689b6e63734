package supervise

import "os"

// setProcessName names the supervisor in lists of processes, where it would otherwise be called
// "exe" after the link by which it was started. The name differs from that of the program, so
// that killing the program by name kills the parent alone, and the supervisor can clean up.
func setProcessName() {
	_ = os.WriteFile("/proc/self/comm", []byte("supervisor"), 0)
}

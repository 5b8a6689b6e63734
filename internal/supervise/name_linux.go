package supervise

import (
	"os"
	"path/filepath"
)

// rename gives a keeper the name of its program in lists of processes, where it
// would be called "exe" after the link by which it was started.
func rename() {
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
}

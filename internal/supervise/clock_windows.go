package supervise

import "time"

var processStart = time.Now()

// bootNow relies on Go reading the interrupt time on Windows, which goes on during sleep. Only
// one process reads it, so that its origin does not matter.
func bootNow() instant { return instant(time.Since(processStart)) }

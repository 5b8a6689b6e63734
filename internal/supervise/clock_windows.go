package supervise

import "time"

var origin = time.Now()

// now relies on Go reading the interrupt time on Windows, which goes on during
// sleep. Only one process looks at it, so that its origin does not matter.
func now() instant { return instant(time.Since(origin)) }

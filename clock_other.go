//go:build !linux

package holdfast

import "time"

// bootClock is nil: the standard library offers none here. A lock may look
// younger than it is after the machine was suspended; the store, and the
// fencing token, are not misled.
var bootClock func() time.Duration

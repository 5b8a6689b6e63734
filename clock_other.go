//go:build !linux

package holdfast

import "time"

// suspendedTime is nil: the standard library offers none here. A lock may look
// younger than it is after the machine was suspended; the store, and the
// fencing token, are not misled.
var suspendedTime func() time.Duration

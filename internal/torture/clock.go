//go:build unix

package torture

import "github.com/holdfast-go/holdfast/internal/hostclock"

// now reads the clock that all processes of the host share.
var now = hostclock.Now

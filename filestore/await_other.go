//go:build !linux

package filestore

import (
	"context"
	"os"
	"time"
)

// awaitEnd closes the file of a session, and waits until it is time to look at it again.
func awaitEnd(ctx context.Context, inbox *os.File, step time.Duration) {
	inbox.Close()
	sleep(ctx, step)
}

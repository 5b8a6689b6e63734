package pgclient

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/retry"
)

const (
	// ListenTimeout bounds each step on a connection that listens: the set-up, and a test.
	ListenTimeout = 5 * time.Second

	// NotifyTimeout bounds the notification of a release.
	NotifyTimeout = 2 * time.Second
)

// PauseBeforeReconnect waits between two attempts to listen, longer after every failure in a row. It
// returns an error if the context ends.
func PauseBeforeReconnect(ctx context.Context, failures int) error {
	return retry.Sleep(ctx, retry.Backoff(failures, 50*time.Millisecond, 2*time.Second))
}

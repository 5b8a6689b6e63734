//go:build !linux

package filestore

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// Here a Store sends no notices, and waiters try at intervals.
type watcher struct{}

func (*watcher) isWaiting(_, _ string) bool { return false }

func (*engine) addWaiter(context.Context, *olddriver.AcquireRequest) bool { return false }

func (*engine) removeWaiter(_, _ string) {}

func (*engine) examineName(string) {}

func (*watcher) close() {}

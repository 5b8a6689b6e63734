//go:build !linux

package filestore

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Here a Store sends no notices, and waiters try at intervals.
type watcher struct{}

func (*watcher) isWaiting(_, _ string) bool { return false }

func (*Store) addWaiter(context.Context, *driver.AcquireRequest) bool { return false }

func (*Store) removeWaiter(_, _ string) {}

func (*Store) examineName(string) {}

func (*watcher) close() {}

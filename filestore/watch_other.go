//go:build !linux

package filestore

// canWatch is false: a Store is no driver.Watcher here, and waiters try at intervals.
const canWatch = false

type watcher struct{}

func (*watcher) close() {}

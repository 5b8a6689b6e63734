//go:build !linux

package filestore

// canWatch: a Store is no driver.Watcher here; waiters try at intervals.
const canWatch = false

type watcher struct{}

func (*watcher) close() {}

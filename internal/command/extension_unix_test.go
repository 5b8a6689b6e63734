//go:build unix

package command

import (
	"os"
	"path/filepath"
	"testing"
)

// TestExtensions is the way to the programs beside this one.
func TestExtensions(t *testing.T) { runLocalScripts(t, "testdata/extension") }

// A holdfast-etcd that lacks the store, such as a link to holdfast, does not execute itself for
// ever.
func TestExtensionIsExecutedOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, extensionPrefix+"etcd"), []byte("#!/bin/sh\necho executed\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	defer func(name string) { os.Args[0] = name }(os.Args[0])
	os.Args[0] = "/usr/bin/" + extensionPrefix + "etcd"
	if err := (stores{"etcd://127.0.0.1:1"}).executeForStore(); err != nil {
		t.Error(err)
	}
}

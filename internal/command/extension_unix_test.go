//go:build unix

package command

import "testing"

// TestExtensions is the way to the programs beside this one.
func TestExtensions(t *testing.T) { runLocalScripts(t, "testdata/extension") }

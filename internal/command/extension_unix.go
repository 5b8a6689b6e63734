//go:build unix

package command

import (
	"fmt"
	"os"
	"syscall"
)

// execute replaces this process by a program.
func execute(path string, args []string) error {
	err := syscall.Exec(path, append([]string{path}, args...), os.Environ())
	return &exitError{exitCannotRun, fmt.Errorf("cannot execute %s: %w", path, err), ""}
}

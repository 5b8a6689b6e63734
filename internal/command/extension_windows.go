package command

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
)

// execute runs a program in place of this one.
func execute(path string, args []string) error {
	signal.Ignore(os.Interrupt) // The program gets it, too.
	cmd := exec.Command(path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) {
		os.Exit(cmd.ProcessState.ExitCode())
	}
	return &exitError{exitCannotRun, fmt.Errorf("cannot execute %s: %w", path, err), ""}
}

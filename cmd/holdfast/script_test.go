package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// longest is far longer than anything takes on a busy machine.
const longest = 30 * time.Second

// exitcode runs a program and checks its exit code, and that holdfast does not
// talk too much:
//
//	exitcode 75 holdfast run x --try -- true
func exitcode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode CODE PROGRAM [ARGUMENT...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if strings.Count("\n"+ts.ReadFile("stderr"), "\nholdfast: ") > 1 {
		ts.Fatalf("holdfast said more than one line")
	}
}

// await waits until files exist.
func await(ts *testscript.TestScript, neg bool, args []string) {
	for _, file := range args {
		for began := time.Now(); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(ts.MkAbs(file)); err == nil {
				break
			}
			if time.Since(began) > longest {
				ts.Fatalf("there is no %s", file)
			}
		}
	}
}

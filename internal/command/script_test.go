package command

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// testTimeout is far longer than anything takes on a busy machine.
const testTimeout = 30 * time.Second

// checkExitCode runs a program and checks its exit code, and that holdfast prints at most one
// message:
//
//	exitcode 75 holdfast run x --try -- true
func checkExitCode(ts *testscript.TestScript, neg bool, args []string) {
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

// awaitFiles waits until files exist.
func awaitFiles(ts *testscript.TestScript, neg bool, args []string) {
	for _, file := range args {
		for began := time.Now(); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(ts.MkAbs(file)); err == nil {
				break
			}
			if time.Since(began) > testTimeout {
				ts.Fatalf("there is no %s", file)
			}
		}
	}
}

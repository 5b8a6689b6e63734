package main

import (
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts are the subcommands that look at locks.
func TestScripts(t *testing.T) {
	heedSignals()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			// Away from the locks of whoever runs the tests.
			env.Setenv("HOLDFAST_STORE", "file:"+env.WorkDir+"/locks")
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Setenv("LONG", strings.Repeat("long", 10<<10/4))
			env.Setenv("CONTROL", "a\x1bb")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode":  exitcode,
			"await":     await,
			"awaitline": awaitLine,
		},
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE") != "",
	})
}

// heedSignals has the programs that a test starts heed the signals that it sends
// them, even where the test was told to ignore them: by nohup, or by a shell that
// runs it in the background. It stays so: who ignores a signal may as well catch it.
var heedSignals = sync.OnceFunc(func() {
	heard := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			signal.Notify(heard, sig)
		}
	}
})

// awaitLine waits until a file has a line that matches:
//
//	awaitline FILE REGEXP
func awaitLine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: awaitline FILE REGEXP")
	}
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		data, _ := os.ReadFile(ts.MkAbs(args[0])) // it may not be there yet
		if want.Match(data) {
			return
		}
		if time.Since(began) > longest {
			ts.Fatalf("no line of %s matches %s:\n%s", args[0], args[1], data)
		}
	}
}

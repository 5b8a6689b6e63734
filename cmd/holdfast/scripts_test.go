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

// TestRun is "holdfast run".
func TestRun(t *testing.T) { local(t, "testdata/run") }

// TestScripts are the other subcommands.
func TestScripts(t *testing.T) { local(t, "testdata/script") }

// local runs scripts that need no server.
func local(t *testing.T, dir string) {
	testscript.Run(t, params(testscript.Params{Dir: dir}, func(env *testscript.Env) {
		// Away from the locks of whoever runs the tests.
		env.Setenv("HOLDFAST_STORE", "file:"+env.WorkDir+"/locks")
		env.Setenv("LONG", strings.Repeat("long", 10<<10/4))
		env.Setenv("CONTROL", "a\x1bb")
	}))
}

// params completes what scripts are run with: our commands, and an environment
// that is not that of whoever runs the tests.
func params(p testscript.Params, set func(env *testscript.Env)) testscript.Params {
	heedSignals()
	p.Setup = func(env *testscript.Env) error {
		env.Setenv("HOME", env.WorkDir)
		env.Setenv("GORACE", os.Getenv("GORACE"))
		set(env)
		return nil
	}
	p.Cmds = map[string]func(*testscript.TestScript, bool, []string){
		"exitcode":  exitcode,
		"await":     await,
		"awaitline": awaitLine,
	}
	p.RequireExplicitExec = true
	p.UpdateScripts = os.Getenv("UPDATE") != ""
	return p
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

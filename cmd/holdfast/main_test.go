package main

import (
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// programs are what the test binary can be started as.
var programs = map[string]func(){"holdfast": main}

func TestMain(m *testing.M) {
	// The race detector has every process sleep for a second at its end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	testscript.Main(m, programs)
}

func TestRun(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/run",
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
			"exitcode": exitcode,
			"await":    await,
		},
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE") != "",
	})
}

package command

import (
	"fmt"
	"io"
	"net/http"
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
func TestRun(t *testing.T) { runLocalScripts(t, "testdata/run") }

// TestScripts are the other subcommands.
func TestScripts(t *testing.T) { runLocalScripts(t, "testdata/script") }

// runLocalScripts runs scripts that need no server.
func runLocalScripts(t *testing.T, dir string) {
	testscript.Run(t, scriptParams(testscript.Params{Dir: dir}, func(env *testscript.Env) {
		// Away from the locks of the user that runs the tests.
		env.Setenv("HOLDFAST_STORE", "file:"+env.WorkDir+"/locks")
		env.Setenv("LONG", strings.Repeat("long", 10<<10/4))
		env.Setenv("CONTROL", "a\x1bb")
	}))
}

// scriptParams completes what scripts are run with: our commands, and an environment that is
// not that of the user that runs the tests.
func scriptParams(p testscript.Params, set func(env *testscript.Env)) testscript.Params {
	acceptSignals()
	p.Setup = func(env *testscript.Env) error {
		env.Setenv("HOME", env.WorkDir)
		env.Setenv("GORACE", os.Getenv("GORACE"))
		set(env)
		return nil
	}
	p.Cmds = map[string]func(*testscript.TestScript, bool, []string){
		"exitcode":  checkExitCode,
		"await":     awaitFiles,
		"awaitline": awaitLine,
		"ask":       askPage,
	}
	p.RequireExplicitExec = true
	p.UpdateScripts = os.Getenv("UPDATE") != ""
	return p
}

// acceptSignals makes the programs that a test starts accept the signals that it sends them,
// even where the test was started to ignore them: by nohup, or by a shell that runs it in the
// background. It stays so: a process that ignores a signal may as well catch it.
var acceptSignals = sync.OnceFunc(func() {
	caught := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(caught, sig)
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
		if time.Since(began) > testTimeout {
			ts.Fatalf("no line of %s matches %s:\n%s", args[0], args[1], data)
		}
	}
}

// askPage prints the status and the body that a page answers, whose address is in a file. It
// presents the token in $TOKEN, and sends a form if there is one in a file:
//
//	ask FILE PATH [FORM]
func askPage(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: ask FILE PATH [FORM]")
	}
	method, form := http.MethodGet, ""
	if len(args) > 2 {
		method, form = http.MethodPost, strings.TrimSpace(ts.ReadFile(args[2]))
	}
	base := regexp.MustCompile(`http://[^/\s]+`).FindString(ts.ReadFile(args[0]))
	request, err := http.NewRequest(method, base+args[1], strings.NewReader(form))
	ts.Check(err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", "Bearer "+ts.Getenv("TOKEN"))
	answer, err := http.DefaultClient.Do(request)
	if neg {
		if err == nil {
			ts.Fatalf("%s answers", base)
		}
		return
	}
	ts.Check(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	ts.Check(err)
	_, _ = fmt.Fprintf(ts.Stdout(), "%d %s", answer.StatusCode, body)
}

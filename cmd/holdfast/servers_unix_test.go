//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// TestServers is the command with stores that need servers.
func TestServers(t *testing.T) {
	const nodes = 3
	node := servers.StartRedises(t, nodes)
	postgres := servers.StartPostgres(t)
	locked := servers.StartRedis(t, "--requirepass", "sesame")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/servers",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", os.Getenv("GORACE"))
			for i, n := range node {
				env.Setenv(fmt.Sprintf("REDIS%d", i+1), "redis://"+n.Addr+"?prefix="+filepath.Base(env.WorkDir)+":") // each script for itself
				env.Setenv(fmt.Sprintf("PID%d", i+1), fmt.Sprint(n.PID()))
			}
			env.Setenv("LOCKED", locked.Addr)
			env.Setenv("POSTGRES", postgres.URL("postgres"))
			env.Setenv("ADVISORY", strings.Replace(postgres.URL("postgres"), "postgres:", "postgres+advisory:", 1))
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

//go:build unix

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdfast-go/holdfast/internal/servers"
)

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // Else every process sleeps for a second at its end.
	testscript.Main(m, map[string]func(){"holdfast": main})
}

// TestCommand is the command on a cluster of etcd.
func TestCommand(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			cluster := servers.StartEtcdCluster(t, 3)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Setenv("HOLDFAST_STORE", "etcd://"+strings.Join(servers.EtcdAddrs(cluster), ","))
			return nil
		},
	})
}

//go:build unix

package redisstore_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
)

// startOwn starts the test binary again as a peer that uses this package: a
// process that runs only the test t, as a child; see obey.
func startOwn(t *testing.T, name, addr string) *peer {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), "REDISSTORE_PEER="+addr, "GORACE=atexit_sleep_ms=0")
	return startPeer(t, name, cmd)
}

// obey is what the child does, if this process is one: it carries out commands
// until its input ends, and reports true.
func obey(t *testing.T, commands func(locks *holdfast.Client, words []string) string) bool {
	addr := os.Getenv("REDISSTORE_PEER")
	if addr == "" {
		return false
	}
	locks := connect(t, addr, nil)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(commands(locks, strings.Fields(lines.Text())))
	}
	return true
}

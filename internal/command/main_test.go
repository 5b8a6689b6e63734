package command

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// programs are what the test binary can be started as.
var programs = map[string]func(){"holdfast": Main}

func TestMain(m *testing.M) {
	// The race detector has every process sleep for a second at its end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	testscript.Main(m, programs)
}

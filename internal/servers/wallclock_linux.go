package servers

import (
	_ "embed" // for the shim
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

//go:embed shim/wallclock.c
var wallClockShim []byte

// A WallClock is the wall clock of one server.
type WallClock struct {
	tb   TB
	path string // of the file with the offset
}

// StartRedisWithClock starts a Redis with a wall clock that can be set. It needs a C
// compiler, as the race detector does.
func StartRedisWithClock(tb TB, args ...string) (*Redis, *WallClock) {
	tb.Helper()
	dir := tb.TempDir()
	source, library := filepath.Join(dir, "wallclock.c"), filepath.Join(dir, "wallclock.so")
	if err := os.WriteFile(source, wallClockShim, 0o600); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.Command("cc", "-O1", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		tb.Fatalf("cc: %v\n%s", err, out)
	}
	clock := &WallClock{tb: tb, path: filepath.Join(dir, "offset")}
	clock.Set(0)
	return startRedis(tb, []string{"LD_PRELOAD=" + library, "WALLCLOCK_FILE=" + clock.path}, args...), clock
}

// Set sets the difference between the clock and the system's clock, in whole seconds.
func (c *WallClock) Set(offset time.Duration) {
	c.tb.Helper()
	file, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.tb.Fatal(err)
	}
	defer file.Close() // Only the write matters.
	if _, err := file.Write(binary.NativeEndian.AppendUint64(nil, uint64(offset/time.Second))); err != nil {
		c.tb.Fatal(err)
	}
}

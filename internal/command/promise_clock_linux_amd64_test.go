package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/servers"
)

func init() {
	faultCases = append(faultCases, faultCase{
		name: "clock set", inject: `echo $parent $supervisor >pipe; read <pipe; kill -9 $supervisor`,
		hook: func(t *testing.T, dir string) {
			pipe := filepath.Join(dir, "pipe")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(pipe, 0o666); err != nil {
				t.Fatal(err)
			}
			go func() {
				text, err := os.ReadFile(pipe) // which the script writes
				if err != nil {
					return // The script has ended before, and is reported.
				}
				var pids [2]int
				_, err = fmt.Sscan(string(text), &pids[0], &pids[1])
				for _, hours := range []time.Duration{1, -1} {
					for _, pid := range pids {
						servers.SetWallClock(t, pid, hours*time.Hour)
					}
					time.Sleep(5 * time.Second)
				}
				if err = errors.Join(err, os.WriteFile(pipe, []byte("\n"), 0)); err != nil {
					t.Error(err)
				}
			}()
		},
	})
}

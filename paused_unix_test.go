//go:build unix

package holdfast_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

func init() { otherProcess = holdAndWrite }

const pausedTTL = time.Second

// holdAndWrite is the other process of TestPausedHolder: it writes its token as
// often as it can, each time after a look at the lock. It does not renew: where
// it is stopped in the middle of a request, others wait for its file.
func holdAndWrite(folder string) int {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "file://"+folder, nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	lock, err := locks.Acquire(ctx, "register", &holdfast.Options{TTL: pausedTTL, NoRenew: true})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for {
		looked := time.Now().UnixNano()
		if err := lock.Err(); err != nil {
			fmt.Println("lost:", err)
			return 0
		}
		fmt.Println("write", lock.Token(), looked)
	}
}

// A holder that was stopped for longer than its TTL sees, at its first look
// after that, that the lock is lost. The one write that may fall between a look
// before the stop and the act after it is refused for its token.
func TestPausedHolder(t *testing.T) {
	for range 10 {
		folder := t.TempDir()
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "HOLDFAST_TEST_FOLDER="+folder, "GORACE=atexit_sleep_ms=0")
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = child.Process.Kill() })
		writes := bufio.NewScanner(out)
		for range 200 { // Its Store has looked at what others left behind by then.
			if !writes.Scan() || !strings.HasPrefix(writes.Text(), "write ") {
				t.Fatal(writes.Text(), writes.Err())
			}
		}
		if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(child.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatal(err, status)
		}
		c, err := holdfast.Open(t.Context(), "file://"+folder, nil)
		if err != nil {
			t.Fatal(err)
		}
		token := acquire(t, c, "register", nil).Token()
		noErr(t, c.Close())
		resumed := time.Now().UnixNano()
		if err := child.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for writes.Scan() {
			var stale, looked int64
			if _, err := fmt.Sscanf(writes.Text(), "write %d %d", &stale, &looked); err != nil {
				break
			}
			if looked >= resumed {
				t.Errorf("the lock looked held %v after the pause", time.Duration(looked-resumed))
			}
			if stale >= token {
				t.Errorf("token %d is not refused after %d", stale, token)
			}
		}
		if !strings.HasPrefix(writes.Text(), "lost: ") {
			t.Errorf("the holder's last word is %q", writes.Text())
		}
		if err := child.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

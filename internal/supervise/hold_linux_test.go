package supervise

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// With front and keeper both killed nobody is left to kill the descendants of the
// command, which itself dies; but what is held stays held by them.
func TestBothKilled(t *testing.T) {
	r := begin(t, order{Hold: lockFile(t), Args: sh(`
		sh -c 'echo $$ >&4; exec sleep 1000' &
		echo $$ >&4; exec sleep 1000`)})
	pids := r.lines(2)
	keeper := r.keeper()
	if err := unix.Kill(keeper, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.state(strconv.Itoa(keeper), "T")
	r.signal(unix.SIGKILL)
	if err := unix.Kill(keeper, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.code()
	for began := time.Now(); len(survivors(r.order.Tag)) > 1; time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("the command has survived both")
		}
	}

	held := r.held()
	if err := unix.Flock(held, unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		t.Fatalf("the file is free while a descendant lives: %v", err)
	}
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Kill(pid, unix.SIGKILL) // one of them is dead already
	}
	r.take(held)
}

// With the keeper killed the front holds what is held until all are dead, even if
// the command has closed what it inherited.
func TestKeeperKilledWhileHolding(t *testing.T) {
	// Only bash can name descriptors above 9.
	r := begin(t, order{Hold: lockFile(t), Args: []string{"/bin/bash", "-c",
		`for fd in {5..30}; do eval "exec $fd>&-"; done; exec /bin/sh -c "$0"`, stubborn[2]}})
	r.lines(stubbornLines)
	if err := unix.Kill(r.keeper(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.take(r.held())
	r.mustBeEmpty()
}

// take waits until nobody holds the file any more.
func (r *run) take(fd int) {
	r.t.Helper()
	began := time.Now()
	for unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		if time.Since(began) > patience {
			r.t.Fatal("the file is not free")
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func lockFile(t *testing.T) string {
	t.Helper()
	file := t.TempDir() + "/held"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// held opens the file that the run holds.
func (r *run) held() int {
	r.t.Helper()
	f, err := os.Open(r.order.Hold)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}

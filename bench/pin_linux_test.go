package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// Every thread of the client and of the server is where the placement has them, also a thread
// that is created afterwards; and the client is free again at the end.
func TestPin(t *testing.T) {
	cores, procs := allowedCores(), runtime.GOMAXPROCS(0)
	if len(cores) != runtime.NumCPU() {
		t.Errorf("this process may run on %v of %d cores", cores, runtime.NumCPU())
	}
	for _, p := range []placement{oneCore, twoCores} {
		if p.supported() != (len(cores) >= int(p)) {
			t.Errorf("%d cores are enough for %q: %v", len(cores), p.suffix(), p.supported())
		}
		server := servers.StartRedis(t)
		unpin, err := p.pin([]int{server.PID()})
		if !p.supported() {
			if err == nil {
				t.Errorf("with %d cores, %q was accepted", len(cores), p.suffix())
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		checkCores(t, os.Getpid(), cores[:1])
		checkCores(t, server.PID(), cores[p-1:p])
		if got := newThread(allowedCores); !slices.Equal(got, cores[:1]) {
			t.Errorf("a new thread runs on %v, want %v", got, cores[:1])
		}
		if n := runtime.GOMAXPROCS(0); n != 1 {
			t.Errorf("GOMAXPROCS is %d", n)
		}
		if server.Do("PING") != "PONG" {
			t.Error("the server does not respond")
		}
		checkRunsOn(t, server.PID(), cores[p-1])
		if err := unpin(); err != nil {
			t.Fatal(err)
		}
		checkCores(t, os.Getpid(), cores)
		if n := runtime.GOMAXPROCS(0); n != procs {
			t.Errorf("afterwards, GOMAXPROCS is %d, want %d", n, procs)
		}
	}
}

// newThread calls f on a thread that was created for it.
func newThread(f func() []int) []int {
	result := make(chan []int)
	go func() {
		runtime.LockOSThread()    // The thread that runs this goroutine ends with it:
		inner := make(chan []int) // so the one that runs the next is another one.
		go func() {
			runtime.LockOSThread()
			inner <- f()
		}()
		result <- <-inner
	}()
	return <-result
}

// checkCores checks on which cores the threads of a process may run.
func checkCores(t *testing.T, pid int, want []int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("the threads of %d: %v, %v", pid, threads, err)
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(filepath.Base(thread))
		if err != nil {
			t.Fatal(err)
		}
		var set, expected unix.CPUSet
		for _, core := range want {
			expected.Set(core)
		}
		if err := unix.SchedGetaffinity(tid, &set); err == nil && set != expected {
			t.Errorf("thread %s may run on %v, want %v", thread, set, want)
		}
	}
}

// checkRunsOn checks on which core a process has run last, as the kernel reports it.
func checkRunsOn(t *testing.T, pid, want int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, fields, _ := strings.Cut(string(stat), ") ")
	const processor = 36 // The fields are counted from the state, which is the third.
	if got := strings.Fields(fields)[processor]; got != strconv.Itoa(want) {
		t.Errorf("process %d has run on core %s, want %d", pid, got, want)
	}
}

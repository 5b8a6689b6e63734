package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// allCores are the cores on which this program may run.
var allCores = allowedCores()

// supported reports whether there are enough cores for the placement.
func (p placement) supported() bool { return len(allCores) >= int(p) }

// allowedCores returns the numbers of the cores on which this thread may run.
func allowedCores() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		panic(err) // It cannot fail for the calling thread.
	}
	var cores []int
	for core := range len(set) * strconv.IntSize {
		if set.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores
}

// pin pins this process and the servers to their cores. With one core for this process,
// GOMAXPROCS is 1. It returns a function that lets this process run on all of its cores again;
// the servers stay where they are.
func (p placement) pin(servers []int) (unpin func() error, err error) {
	if p == anyCore {
		return func() error { return nil }, nil
	}
	if !p.supported() {
		return nil, fmt.Errorf("%d cores are needed, and there are %d", p, len(allCores))
	}
	for _, pid := range servers {
		if err := pinProcess(pid, allCores[p-1]); err != nil {
			return nil, err
		}
	}
	procs := runtime.GOMAXPROCS(1)
	return func() error {
		err := pinProcess(os.Getpid(), allCores...)
		runtime.GOMAXPROCS(procs)
		return err
	}, pinProcess(os.Getpid(), allCores[0])
}

// pinProcess sets the cores of all threads of a process. A thread that is created meanwhile may
// have the cores of before: so it looks again until it finds no new one.
func pinProcess(pid int, cores ...int) error {
	var set unix.CPUSet
	for _, core := range cores {
		set.Set(core)
	}
	folder := fmt.Sprintf("/proc/%d/task", pid)
	pinned := map[string]bool{}
	for {
		threads, err := os.ReadDir(folder)
		if err != nil {
			return err
		}
		before := len(pinned)
		for _, thread := range threads {
			if pinned[thread.Name()] {
				continue
			}
			tid, err := strconv.Atoi(thread.Name())
			if err != nil {
				return err
			}
			err = unix.SchedSetaffinity(tid, &set)
			if err != nil && !errors.Is(err, unix.ESRCH) { // The thread has ended.
				return &fs.PathError{Op: "pin", Path: folder + "/" + thread.Name(), Err: err}
			}
			pinned[thread.Name()] = true
		}
		if len(pinned) == before {
			return nil
		}
	}
}

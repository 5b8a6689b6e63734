package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processUsage returns the CPU time in seconds and the memory in bytes of a process and its
// children. Memory that several processes share counts once.
func processUsage(pid int) (cpu, memory float64) {
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // The pattern is well formed.
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // The process has ended.
		}
		// The name of the program, in brackets, may contain anything.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		own := path == fmt.Sprintf("/proc/%d/stat", pid)
		if !own && fields[1] != strconv.Itoa(pid) {
			continue
		}
		times := fields[11:13] // of the process
		if own {
			times = fields[11:15] // and of the children that have ended
		}
		const ticksPerSecond = 100
		for _, field := range times {
			ticks, _ := strconv.ParseFloat(field, 64) // Linux writes a number.
			cpu += ticks / ticksPerSecond
		}
		memory += proportionalSize(filepath.Join(filepath.Dir(path), "smaps_rollup"))
	}
	return cpu, memory
}

// proportionalSize reads the Pss of a process: its memory, where shared pages count as a share.
func proportionalSize(path string) float64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0 // The process has ended.
	}
	var kilobytes float64
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "Pss: %f kB", &kilobytes); err == nil {
			break
		}
	}
	return kilobytes * 1024
}

// threadTime returns the CPU time in seconds of the threads of a process, to the nanosecond.
func threadTime(pid int) (seconds float64) {
	// The pattern is well formed.
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, path := range paths {
		var nanoseconds float64
		if text, err := os.ReadFile(path); err == nil { // The thread is still there.
			_, _ = fmt.Sscan(string(text), &nanoseconds) // Linux writes a number, if it counts this.
		}
		seconds += nanoseconds / 1e9
	}
	return seconds
}

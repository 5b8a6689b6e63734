//go:build unix && !linux

package main

// processUsage is for Linux.
func processUsage(int) (cpu, memory float64) { return 0, 0 }

// threadTime is for Linux.
func threadTime(int) float64 { return 0 }

package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// goroutinesLabel marks the goroutines of a case. A goroutine inherits the labels of the goroutine
// that starts it, which distinguishes the goroutines of cases that run at the same time.
const goroutinesLabel = "drivertest"

var caseNumber atomic.Int64

// checkGoroutines makes the test fail if goroutines started from here on outlive it. It must be
// called before other cleanups are registered, so that it runs after them.
func checkGoroutines(tb testing.TB) {
	id := strconv.FormatInt(caseNumber.Add(1), 10)
	labels := pprof.Labels(goroutinesLabel, id)
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), labels))
	tb.Cleanup(func() {
		pprof.SetGoroutineLabels(context.Background())
		deadline := time.Now().Add(10 * time.Second)
		for {
			left := labelledGoroutines(id)
			if left == "" {
				return
			}
			if time.Now().After(deadline) {
				tb.Errorf("goroutines are left behind:\n%s", left)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// labelledGoroutines returns the part of the goroutine profile that has the label with this id.
func labelledGoroutines(id string) string {
	var profile, left bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return err.Error()
	}
	label := fmt.Appendf(nil, "%q:%q", goroutinesLabel, id)
	for group := range bytes.SplitSeq(profile.Bytes(), []byte("\n\n")) {
		if bytes.Contains(group, label) {
			left.Write(group)
			left.WriteString("\n\n")
		}
	}
	return left.String()
}

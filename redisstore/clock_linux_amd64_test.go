package redisstore_test

import (
	"context"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe" // also for linkname

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/faultproxy"
	"github.com/holdfast-go/holdfast/internal/servers"
)

// vdsoClockGettime is where the Go runtime finds the kernel's function that
// reads the clocks.
//
//go:linkname vdsoClockGettime runtime.vdsoClockgettimeSym
var vdsoClockGettime uintptr

// readClocks is put in its place. It asks the kernel by a system call, and adds
// a number of seconds, which follows it, to the wall clock:
//
//	mov eax, 228; syscall; test edi, edi; jne end; mov rdx, [rip+6]; add [rsi], rdx; end: ret
var readClocks = []byte{
	0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0x85, 0xff, 0x75, 0x0a,
	0x48, 0x8b, 0x15, 6, 0, 0, 0, 0x48, 0x01, 0x16, 0xc3, 0, 0,
}

// setWallClock returns a function that makes the wall clock of this process
// differ from the system's by a number of seconds.
func setWallClock(t *testing.T) func(seconds int64) {
	t.Helper()
	const rwx = syscall.PROT_READ | syscall.PROT_WRITE | syscall.PROT_EXEC
	page, err := syscall.Mmap(-1, 0, syscall.Getpagesize(), rwx, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	copy(page, readClocks)
	offset := (*int64)(unsafe.Pointer(&page[len(readClocks)]))
	atomic.StoreUintptr(&vdsoClockGettime, uintptr(unsafe.Pointer(&page[0])))
	return func(seconds int64) { atomic.StoreInt64(offset, seconds) }
}

// The wall clock of a holder is set forward and back by an hour: that changes
// nothing. It goes on renewing, and when it is cut off it knows that its lock
// is lost before another client has it.
func TestClientClockSet(t *testing.T) {
	const ttl = 2 * time.Second
	if os.Getenv("REDISSTORE_PEER") != "" {
		obey(t, steppedHolder(t, ttl))
		return
	}
	t.Parallel()
	server := servers.StartRedis(t)
	proxy := faultproxy.Start(t, server.Addr)
	s := storeOf(t, server)
	holder := startOwn(t, "holder", proxy.Addr())
	token := holder.do("take")
	for _, hours := range []int64{1, -1} {
		holder.must("set", "set", strconv.FormatInt(hours*3600, 10))
		said, err := strconv.ParseInt(holder.do("time"), 10, 64)
		if off := time.Until(time.Unix(said, 0)) - time.Duration(hours)*time.Hour; err != nil || off.Abs() > 10*time.Minute {
			t.Fatalf("the holder's clock is %v off the time it was set to (%v): this test tests nothing", off, err)
		}
		for began := time.Now(); time.Since(began) < 3*ttl/2; <-time.After(ttl / 50) {
			if tryFor(t, s, "another", time.Minute).Granted {
				t.Fatalf("a holder whose clock was set to %+dh has lost its lock", hours)
			}
		}
		holder.must(token, "held")
	}
	proxy.Hold(faultproxy.Up)
	proxy.Hold(faultproxy.Down)
	var granted time.Time
	eventually(t, "end of the hold", func() bool {
		res := tryFor(t, s, "another", time.Minute)
		granted = time.UnixMicro(res.Token)
		return res.Granted
	})
	holder.must("lost", "held")
	deadline, err := strconv.ParseInt(holder.do("deadline"), 10, 64)
	if err != nil || !time.UnixMicro(deadline).Before(granted) {
		t.Errorf("the deadline is %v (%v), not before the grant to another client at %v", time.UnixMicro(deadline), err, granted)
	}
}

// steppedHolder takes a lock, and has its wall clock set.
func steppedHolder(t *testing.T, ttl time.Duration) func(locks *holdfast.Client, words []string) string {
	set, offset := setWallClock(t), int64(0)
	var lock *holdfast.Lock
	return func(locks *holdfast.Client, words []string) string {
		switch words[0] {
		case "take":
			var err error
			if lock, err = locks.Acquire(context.Background(), "name", &holdfast.Options{TTL: ttl}); err != nil {
				return err.Error()
			}
		case "set":
			offset, _ = strconv.ParseInt(words[1], 10, 64) // The time shows what came of it.
			set(offset)
			return "set"
		case "time":
			return strconv.FormatInt(time.Now().Unix(), 10)
		case "deadline": // as the clock of everybody else goes
			return strconv.FormatInt(lock.Deadline().UnixMicro()-offset*int64(time.Second/time.Microsecond), 10)
		}
		if lock.Err() != nil {
			return "lost"
		}
		return strconv.FormatInt(lock.Token(), 10)
	}
}

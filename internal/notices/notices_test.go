package notices

import (
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A function is not called any more when its stop has returned.
func TestStopWaits(t *testing.T) {
	var r Registry
	var running atomic.Bool
	entered := make(chan struct{})
	stop := r.Notify(func(string, string, int64) {
		running.Store(true)
		close(entered)
		time.Sleep(20 * time.Millisecond) // longer than a stop that does not wait
		running.Store(false)
	})
	go r.Send("", "", 0)
	<-entered
	stop()
	if running.Load() {
		t.Error("stop has returned while the function runs")
	}
}

// Entries that come and go leave nothing, and a message finds those that are there.
func TestMailbox(t *testing.T) {
	m := Mailbox{Tag: func(name, owner string) string { return name + "/" + owner }}
	told := map[string]int64{}
	m.Notify(func(name, owner string, token int64) { told[name+"/"+owner] = token })
	const many, messages = 100_000, 50_000
	for i := range many {
		owner := strconv.Itoa(i)
		m.Expect("name", owner, time.Minute)
		if i < messages {
			m.Receive("name/"+owner, "0")
			m.Expect("name", owner, time.Minute) // It is renewed.
		}
		m.Forget("name", owner)
	}
	if n := len(m.fresh) + len(m.tagged); n > 2000 || len(told) != messages {
		t.Errorf("%d are left, %d were told", n, len(told))
	}
	m.Expect("name", "a", time.Minute)
	m.Expect("name", "b", time.Minute)
	for _, tag := range []string{"name/b", "name/c", "name/a"} {
		m.Receive(tag, "5")
	}
	if told["name/a"] != 5 || told["name/b"] != 5 || len(told) != messages+2 {
		t.Errorf("told %d, want a and b", len(told))
	}
}

// A look for a moment does not shorten what is expected of a hold.
func TestShortLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tagged := range []bool{false, true} {
			m := Mailbox{Tag: func(name, owner string) string { return name + "/" + owner }}
			told := 0
			m.Notify(func(string, string, int64) { told++ })
			m.Expect("name", "a", time.Hour)
			if tagged {
				m.Receive("name/b", "0")
			}
			m.Expect("name", "a", time.Second)
			m.Receive("name/b", "0")
			time.Sleep(2 * time.Minute)
			for i := range 1100 {
				m.Expect("name", strconv.Itoa(i), time.Minute)
			}
			if m.Receive("name/a", "0"); told != 1 {
				t.Errorf("tagged %v: told %d times, want once", tagged, told)
			}
		}
	})
}

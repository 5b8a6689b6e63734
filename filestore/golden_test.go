package filestore

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Versions without shared and limited holds go on reading what is written for exclusive ones, byte
// for byte.
func TestBytesOfAnExclusiveRecord(t *testing.T) {
	f := newFakeHost()
	s := openTestOn(t, f.host(), t.TempDir())
	expect := func(want string) {
		t.Helper()
		data, err := os.ReadFile(s.recordPath("name"))
		if err != nil {
			t.Fatal(err)
		}
		got := strings.ReplaceAll(string(data), s.currentSessionID(), "SESSION")
		if got = strings.TrimRight(got, " "); got != want+"\n" {
			t.Errorf("the record is\n%q, want\n%q", got, want+"\n")
		}
	}
	req := driver.AcquireRequest{
		Name: "name", Owner: "o", Holder: "h", TTL: time.Minute, Tokens: 3, Queue: time.Hour, Metadata: map[string]string{"k": "<v>"},
	}
	acquire := func(req driver.AcquireRequest, want bool) {
		t.Helper()
		if res, err := s.Acquire(t.Context(), req); err != nil || res.Granted != want {
			t.Fatal(res, err)
		}
	}
	const held = `{"holdfast":1,"name":"name","state":"held","holder":"h","token":1767323045000000,"last_token":1767323045000002,` +
		`"since":"2026-01-02T03:04:05Z","until":"2026-01-02T03:05:05Z","metadata":{"k":"<v>"},` +
		`"owner_sha256":"65c74c15a686187bb6bbf9958f494fc6b80068034a659a9ad44991b08c58f2d2","boot":"boot-1","expires_ns":3660000000000,` +
		`"session":"SESSION"}`
	acquire(req, true)
	expect(held)
	waiter := request("name", time.Minute)
	waiter.Queue = time.Hour
	acquire(waiter, false)
	expect(held)
	for _, keep := range []time.Duration{time.Minute, 0} {
		acquire(req, true)
		if ours, err := s.Release(t.Context(), driver.ReleaseRequest{Name: "name", Owner: "o", Keep: keep}); err != nil || !ours {
			t.Fatal(ours, err)
		}
		if keep > 0 {
			expect(`{"holdfast":1,"name":"name","state":"kept","token":1767323045000000,"last_token":1767323045000002,` +
				`"since":"2026-01-02T03:04:05Z","until":"2026-01-02T03:05:05Z",` +
				`"owner_sha256":"65c74c15a686187bb6bbf9958f494fc6b80068034a659a9ad44991b08c58f2d2","boot":"boot-1","expires_ns":3660000000000}`)
			f.pass(2 * time.Minute)
		}
	}
	expect(`{"holdfast":1,"name":"name","state":"free","token":1767323165000002}`)
}

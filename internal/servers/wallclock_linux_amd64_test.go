package servers

import (
	"net/http"
	"testing"
	"time"
)

// The wall clock of a member is set, and set again, and its timers are not affected.
func TestSetWallClock(t *testing.T) {
	t.Parallel()
	member := StartEtcd(t)
	for _, offset := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		member.SetWallClock(offset)
		resp, err := http.Get("http://" + member.Addr + "/health")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		date, err := http.ParseTime(resp.Header.Get("Date"))
		if off := time.Until(date) - offset; err != nil || off.Abs() > time.Minute {
			t.Errorf("with an offset of %v the server has the time %v: %v", offset, date, err)
		}
	}
}

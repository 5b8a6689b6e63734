package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/olddriver"
)

// hostileRecords returns what no store has written, for the record of the name "bad".
func hostileRecords(h host) map[string]string {
	line := func(fields string) string {
		return fmt.Sprintf(`{"holdfast":1,"name":"bad","state":"held","boot":%q,%s}`+"\n", h.boot, fields)
	}
	const year = int64(365 * 24 * time.Hour)
	return map[string]string{
		"lasts for ever":        line(fmt.Sprintf(`"token":7,"expires_ns":%d`, int64(math.MaxInt64))),
		"ended before the boot": line(fmt.Sprintf(`"token":7,"expires_ns":%d`, int64(math.MinInt64))),
		"the last token":        line(fmt.Sprintf(`"token":%d,"expires_ns":%d`, int64(driver.MaxToken), year)),
		"a token too far":       line(fmt.Sprintf(`"token":%d,"expires_ns":%d`, int64(driver.MaxToken)+1, year)),
		"a token below zero":    line(fmt.Sprintf(`"token":-1,"expires_ns":%d`, year)),
		"a huge number":         line(`"token":1e999,"expires_ns":1`),
		"escape sequences":      line(fmt.Sprintf(`"token":7,"expires_ns":%d,"holder":"\u001b]0;x\u0007\u009b2J","metadata":{"\u001b[2J":"\r\n\u001b[1A"}`, year)),
		"raw control":           line(fmt.Sprintf(`"token":7,"expires_ns":%d,"holder":"`+"\x7f\u0085\xff"+`"`, year)),
		"a begin of nonsense":   line(fmt.Sprintf(`"token":7,"expires_ns":%d,"since":"99999-99-99","until":"x"`, year)),
		"odd metadata":          line(fmt.Sprintf(`"token":7,"expires_ns":%d,"metadata_base64":["AA=="]`, year)),
		"a path for a session":  line(fmt.Sprintf(`"token":7,"expires_ns":%d,"session":"../../../../../../etc/passwd"`, year)),
		"deep":                  strings.Repeat(`{"name":`, 500),
		"binary":                strings.Repeat("\xff\x00\x1b", 1000),
		"a long holder":         line(fmt.Sprintf(`"token":7,"expires_ns":%d,"holder":"%s"`, year, strings.Repeat("x", 3000))),
	}
}

// TestHostileRecords: whatever a record says, requests for its name end, what they
// show does no harm to a terminal or to JSON, and other names go on.
func TestHostileRecords(t *testing.T) {
	h, err := thisHost()
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range hostileRecords(h) {
		t.Run(what, func(t *testing.T) {
			s := openTest(t, t.TempDir())
			granted(t, s, "good", time.Hour)
			writeFile(t, s.recordPath("bad"), text)
			useHostile(t, s)
		})
	}
}

// TestHostileTokens: a tokens file that nobody can have written is an error that
// names it, and no reason for tokens to fall.
func TestHostileTokens(t *testing.T) {
	for what, line := range map[string]savedTokens{
		"a clock without end":   {Turn: 1, Micros: math.MaxInt64, Mark: 1},
		"a clock below zero":    {Turn: 1, Micros: math.MinInt64, Mark: 1},
		"a mark out of range":   {Turn: 1, Micros: 1, Mark: driver.MaxToken + 1},
		"no more turns":         {Turn: math.MaxInt64, Micros: 1, Mark: 1},
		"a boot before the one": {Turn: 1, Micros: 1, At: math.MinInt64, Mark: 1},
	} {
		t.Run(what, func(t *testing.T) {
			s := openTest(t, t.TempDir())
			line.Boot = s.host.boot
			line.Sum = checksum(line)
			slot := string(encodeSlot(line))
			writeFile(t, s.tokensPath(), slot+slot+slot)
			if err := os.Truncate(s.tokensPath(), 1<<40); err != nil {
				t.Fatal(err)
			}
			_, err := s.Acquire(t.Context(), request("name", time.Hour))
			wantError(t, err, driver.ErrCorrupt, s.tokensPath(), "delete it")
		})
	}
}

// useHostile uses every request on the name "bad", and checks what it shows.
func useHostile(t *testing.T, s *engine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	checkError := func(what string, err error) {
		t.Helper()
		switch {
		case err == nil:
		case errors.Is(err, context.DeadlineExceeded):
			t.Errorf("%s hangs: %v", what, err)
		case strings.IndexFunc(err.Error(), unicode.IsControl) >= 0:
			t.Errorf("the error of %s has control characters: %q", what, err)
		}
	}
	_, err := s.Renew(ctx, []olddriver.RenewRequest{{Name: "bad", Owner: "x", TTL: time.Hour}})
	checkError("Renew", err)
	_, err = s.Release(ctx, olddriver.ReleaseRequest{Name: "bad", Owner: "x"})
	checkError("Release", err)
	rec, _, err := s.Lookup(ctx, "bad")
	checkError("Lookup", err)
	checkShown(t, rec)
	seen := false
	for rec, err := range s.List(ctx, "") {
		checkError("List", err)
		checkShown(t, rec)
		seen = seen || rec.Name == "good"
	}
	if !seen {
		t.Error("List does not yield the other name")
	}
	res, err := s.Acquire(ctx, request("bad", time.Hour))
	checkError("Acquire", err)
	checkShown(t, res.Held)
	s.sweepIdle(ctx, 0)
	rec, _, err = s.Break(ctx, olddriver.BreakRequest{Name: "bad"})
	checkError("Break", err)
	checkShown(t, rec)
	req, _ := granted(t, s, "another", time.Hour)
	released(t, s, req)
}

// dropSpace drops the control characters that metadata may have.
func dropSpace(c rune) rune {
	if strings.ContainsRune("\t\r\n", c) {
		return -1
	}
	return c
}

// checkShown checks that a record can be shown.
func checkShown(t *testing.T, rec olddriver.Record) {
	t.Helper()
	texts := []string{rec.Name, rec.Holder}
	for key, value := range rec.Metadata {
		texts = append(texts, strings.Map(dropSpace, key), strings.Map(dropSpace, value))
	}
	for _, text := range texts {
		if strings.IndexFunc(text, unicode.IsControl) >= 0 {
			t.Errorf("the record has control characters: %q", text)
		}
	}
	if _, err := json.Marshal(rec); err != nil {
		t.Errorf("the record has no JSON: %v", err)
	}
	if rec.Remaining < 0 || rec.Token < 0 || rec.Token > driver.MaxToken {
		t.Errorf("the record is out of range: %+v", rec)
	}
}

package filestore

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A shard whose maker was killed before it had written anything can be used, and so can one of
// which a power loss has left nothing.
func TestUnmadeFiles(t *testing.T) {
	for _, text := range []string{"", strings.Repeat("\x00", 3*headerSize+1)} {
		s := openTest(t, t.TempDir())
		writeFile(t, s.pathOf("name"), text)
		if records, err := s.Lookup(t.Context(), "name"); len(records) > 0 || err != nil {
			t.Error(records, err)
		}
		writeFile(t, s.pathOf("name"), text)
		next(t, s, "name")
	}
}

// A name with as many entries as fit into a file gets no more, and all that there are go on.
func TestManyEntries(t *testing.T) {
	s := openTest(t, t.TempDir())
	shared := func() driver.Request {
		req := request("name", time.Hour)
		req.Limit, req.Metadata = driver.Shared, map[string]string{"why": strings.Repeat("x", 120)}
		return req
	}
	held, _ := grantedTo(t, s, shared())
	text, err := os.ReadFile(s.pathOf("name"))
	if err != nil {
		t.Fatal(err)
	}
	e, session, _, _ := decodeEntry(text[headerSize:])
	e.Data.session = string(session)
	lines := mostSize/512 - 100
	for range lines {
		e.Owner, e.Token = hashOf(fmt.Sprint(e.Token)), e.Token-1
		line := fmt.Appendf(nil, mutable, e.Token, e.Tokens, e.Limit, e.Until, e.Kept, e.Data.detached, e.Data.session, e.Owner)
		line = append(line, e.Data.public...)
		text = append(append(text, blanks[pageSize-512+len(line):]...), line...)
	}
	writeFile(t, s.pathOf("name"), string(text))
	more := 0
	for err := error(nil); err == nil; more++ {
		var res driver.Result
		req := shared()
		req.Metadata = map[string]string{"why": strings.Repeat("x", 1000)}
		if res, err = s.Acquire(t.Context(), req); err != nil {
			wantError(t, err, driver.ErrNotApplied, s.pathOf("name"), "too many")
		} else if !res.Granted {
			t.Fatal(res)
		}
	}
	now, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "name", Owner: held.Owner, TTL: driver.MaxTTL}})
	if err != nil || now[0].State != driver.Held {
		t.Error(now, err)
	}
	released(t, s, held)
	if broken, err := s.Break(t.Context(), "name", 0); err != nil || len(broken) != lines+more-1 {
		t.Error(len(broken), more, err)
	}
	next(t, s, "name")
}

// Changes leave JSON with a line for each live entry of all names, in the order of their tokens,
// without the secret of an owner, in a file no larger than three times what it has had at most.
func TestChanges(t *testing.T) {
	s := openTest(t, t.TempDir())
	var live []driver.Request
	longest := int64(0)
	for n, names := 0, besideName(3); n < 1500; n++ {
		switch what := rand.IntN(10); {
		case len(live) < 2 || what < 4 && len(live) < 100:
			req := request(names[rand.IntN(len(names))], time.Hour)
			req.Place, req.Limit = time.Hour, []int{1, 3, driver.Shared}[rand.IntN(3)]
			req.Metadata = map[string]string{"{": strings.Repeat("<", rand.IntN(100)+rand.IntN(50)/49*800)}
			if _, err := s.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			live = append(live, req)
		case what < 7:
			i := rand.IntN(len(live))
			released(t, s, live[i])
			live = append(live[:i:i], live[i+1:]...)
		default:
			req := live[rand.IntN(len(live))]
			req.TTL *= 2
			if state := renewed(t, s, req); state == driver.Lost {
				t.Fatal(state)
			}
		}
		text, err := os.ReadFile(s.pathOf("name"))
		if err != nil {
			t.Fatal(err)
		}
		type line struct {
			Name, Holder string
			Token        int64
		}
		var lines []line
		for stream := json.NewDecoder(bytes.NewReader(text)); stream.More(); {
			lines = append(lines, line{})
			if err := stream.Decode(&lines[len(lines)-1]); err != nil {
				t.Fatalf("%v, %s", err, text)
			}
		}
		slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.Token, b.Token) })
		lines = lines[1:] // after the header
		for i, req := range live {
			if len(lines) != len(live) || lines[i].Name != req.Name || lines[i].Holder != req.Holder || bytes.Contains(text, []byte(`"`+req.Owner+`"`)) {
				t.Fatalf("the file has the entries %v, want %v", lines, live)
			}
		}
		for at, line := 0, []byte(nil); at < len(text); at += len(line) {
			line = bytes.SplitAfterN(text[at:], []byte("\n"), 2)[0]
			if at/pageSize != (at+len(line)-1)/pageSize {
				t.Fatalf("the line at %d is in two pages", at)
			}
		}
		longest = max(longest, int64(len(bytes.Join(bytes.Fields(text), nil))))
		if size := int64(len(text)); size > 3*(longest+pageSize) {
			t.Fatalf("with %d entries the file has %d bytes", len(live), size)
		}
	}
}

// A shard becomes small again when none of its names is in use, also if they are never asked for
// again after their entries have ended by time.
func TestNamesOfOneShard(t *testing.T) {
	f := newFakeHost()
	s := openTestOn(t, f.host(), t.TempDir())
	for _, name := range besideName(200) {
		kept, _ := granted(t, s, name, time.Hour)
		if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: kept.Owner, Keep: driver.MinTTL}); err != nil {
			t.Fatal(err)
		}
	}
	f.pass(2 * time.Minute)
	next(t, s, "name")
	if info, err := os.Stat(s.pathOf("name")); err != nil || info.Size() > pageSize {
		t.Errorf("%d bytes are left, %v", info.Size(), err)
	}
}

// besideName returns n names of the shard that "name" is in.
func besideName(n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint(i); newState(name, "").number == newState("name", "").number {
			names = append(names, name)
		}
	}
	return names
}

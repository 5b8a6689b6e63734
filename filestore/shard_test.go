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

// A file is plain JSON for people and other tools, and the secret of the owner is not in it.
func TestReadable(t *testing.T) {
	s := openTest(t, t.TempDir())
	req := request("invoices/42", time.Hour)
	req.Metadata = map[string]string{"why": strings.Repeat("<&>", 250)}
	grantedTo(t, s, req)
	refused := waiting(t, s, request(req.Name, time.Hour))
	text, err := os.ReadFile(s.pathOf(req.Name))
	if err != nil {
		t.Fatal(err)
	}
	names, holders := shownIn(t, text)
	if !slices.Equal(names, []string{req.Name, req.Name}) || !slices.Equal(holders, []string{req.Holder, refused.Holder}) || !strings.Contains(string(text), "<&><&>") {
		t.Errorf("the file has %s", text)
	}
	for _, owner := range []string{req.Owner, refused.Owner} {
		if strings.Contains(string(text), `"`+owner+`"`) {
			t.Errorf("the file shows an owner: %s", text)
		}
	}
}

// shownIn returns what a shard shows to other tools, as a stream of JSON, in the order of tokens.
func shownIn(t *testing.T, text []byte) (names, holders []string) {
	t.Helper()
	type shown struct {
		Name, Holder string
		Token        int64
	}
	var entries []shown
	for stream := json.NewDecoder(bytes.NewReader(text)); stream.More(); {
		var e shown
		if err := stream.Decode(&e); err != nil {
			t.Fatalf("%v, %s", err, text)
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b shown) int { return cmp.Compare(a.Token, b.Token) })
	for _, e := range entries[1:] { // after the header
		names, holders = append(names, e.Name), append(holders, e.Holder)
	}
	return names, holders
}

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
		line := append(encodeEntry(&e), e.Data.public...)
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

// Changes leave JSON with the live entries in their order, in a file no larger than three times
// what it has had at most.
func TestChanges(t *testing.T) {
	s := openTest(t, t.TempDir())
	var live []driver.Request
	longest := int64(0)
	for range 1500 {
		switch n := rand.IntN(10); {
		case len(live) < 2 || n < 4 && len(live) < 100:
			req := request("name", time.Hour)
			req.Place, req.Limit = time.Hour, []int{1, 3, driver.Shared}[rand.IntN(3)]
			req.Metadata = map[string]string{"{": strings.Repeat("{", rand.IntN(100)+rand.IntN(50)/49*800)}
			if _, err := s.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			live = append(live, req)
		case n < 7:
			i := rand.IntN(len(live))
			if err := release(s, live[i]); err != nil {
				t.Fatal(err)
			}
			live = append(live[:i:i], live[i+1:]...)
		default:
			req := live[rand.IntN(len(live))]
			now, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: req.Name, Owner: req.Owner, TTL: 2 * time.Hour}})
			if err != nil || now[0].State == driver.Lost {
				t.Fatal(now, err)
			}
		}
		text, err := os.ReadFile(s.pathOf("name"))
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, req := range live {
			want = append(want, req.Holder)
		}
		if _, got := shownIn(t, text); !slices.Equal(got, want) {
			t.Fatalf("the file has the entries %v, want %v", got, want)
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

// Names of one shard do not touch each other. It becomes small again when none is in use, also if
// the names are never asked for again after their entries have ended by time.
func TestNamesOfOneShard(t *testing.T) {
	s := openTest(t, t.TempDir())
	names := besideName(200)
	held, _ := granted(t, s, names[0], time.Hour)
	var many []driver.Request
	for _, name := range names[1:] {
		req := request("name", time.Hour)
		req.Limit = driver.Shared
		grantedTo(t, s, req)
		many = append(many, req)
		kept, _ := granted(t, s, name, time.Hour)
		if _, err := s.Release(t.Context(), driver.ReleaseRequest{Name: name, Owner: kept.Owner, Keep: driver.MinTTL}); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, openTest(t, s.dir), names[0])
	for _, req := range many {
		released(t, s, req)
	}
	released(t, s, held)
	time.Sleep(2 * driver.MinTTL)
	next(t, s, "name")
	if info, err := os.Stat(s.pathOf("name")); err != nil || info.Size() > pageSize {
		t.Errorf("%d bytes are left, %v", info.Size(), err)
	}
}

// besideName returns n names of the shard that "name" is in.
func besideName(n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint(i); anyone(name).shard == anyone("name").shard {
			names = append(names, name)
		}
	}
	return names
}

// Detached holds are listed after the end of their process, whatever else is in their file.
func TestListDetached(t *testing.T) {
	s := openTest(t, t.TempDir())
	dead := openTest(t, s.dir)
	names := besideName(4)
	granted(t, s, names[0], time.Hour)
	for _, name := range names[1:] {
		req := request(name, time.Hour)
		req.Detached = true
		grantedTo(t, dead, req)
	}
	dead.die()
	waiting(t, s, request(names[1], time.Hour))
	var listed []string
	for rec, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, rec.Name)
	}
	if slices.Sort(names); !slices.Equal(listed, names) {
		t.Errorf("%q are listed, want %q", listed, names)
	}
	refused(t, s, names[1])
}

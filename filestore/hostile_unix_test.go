//go:build unix

package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
)

// spoil returns what no store has written, made from the file of the name "bad".
func spoil(contents string) map[string]string {
	line, entries := contents[:headerSize], contents[headerSize:]
	replace := func(old, new string) string {
		spoilt := strings.Replace(entries, old, new, 1)
		if spoilt == entries {
			panic(old)
		}
		return line + spoilt
	}
	spoilt := map[string]string{
		"torn":            contents[:headerSize+100],
		"not JSON":        "hello\n",
		"a token above":   replace(`"token":1`, `"token":9`),
		"many tokens":     replace(`"tokens": 1`, `"tokens":65`),
		"no limit":        replace(`"limit":         1`, `"limit":         0`),
		"a token below":   replace(`"token":1`, `"token":-`),
		"a huge number":   replace(`"until_ns": `, `"until_ns":99999999999999999999`),
		"an escape":       replace(`"session":"`, `"session":"../../x`),
		"a tail":          contents + "x",
		"a long line":     contents + strings.Repeat("x", 5000) + "\n",
		"zeros behind":    contents + "\x00\x00",
		"twice":           contents + entries,
		"deep":            strings.Repeat(`{"name":`, 500),
		"binary":          strings.Repeat("\xff\x00\x1b", 1000),
		"an odd holder":   replace(`"holder":"`, `"holder":"\u001b]0;x\u0007\u009b2J`),
		"a raw holder":    replace(`"holder":"`, `"holder":"`+"\x7f\u0085\xff"),
		"odd metadata":    replace(`"holder":`, `"metadata":{"\u001b[2J":"\r\n\u001b[1A"},"holder":`),
		"metadata of one": replace(`"holder":`, `"metadata":1,"holder":`),
		"no time":         replace(`"since":"`, `"since":"9`),
		"text before":     replace("{", "x{"),
		"a line before":   "\n" + contents,
		"a keep of the owner of a dead hold": replace(`"kept":false`, `"kept": true`) +
			regexp.MustCompile(`"session":"\w+"`).ReplaceAllString(strings.Replace(entries, `"token":1`, `"token":2`, 1), `"session":"`+strings.Repeat("0", sessionIDLen)+`"`),
	}
	header := regexp.MustCompile(`"boot":"[^"]*"`).ReplaceAllLiteralString(strings.TrimSpace(line), `"boot":"`+strings.Repeat("\xff", 200)+`"`)
	spoilt["an odd boot"] = fmt.Sprintf("%*s\n%s", 1-headerSize, header, entries)
	for _, key := range []string{"holdfast", "mark", "flushed", "last_token"} {
		for _, value := range []string{"1", "-1", "9007199254740992", "99999999999999999999", `"3"`, ""} {
			header := regexp.MustCompile(`"`+key+`":\d+`).ReplaceAllString(strings.TrimSpace(line), `"`+key+`":`+value)
			spoilt[key+" "+value] = fmt.Sprintf("%*s\n%s", 1-headerSize, header, entries)
		}
	}
	return spoilt
}

// shown are those of them that are read as a hold: they differ in what people see.
var shown = map[string]bool{"an odd boot": true, "an odd holder": true, "a raw holder": true, "odd metadata": true, "metadata of one": true, "mark 1": true, "flushed 1": true, "last_token 1": true, "no time": true, "a line before": true, "a keep of the owner of a dead hold": true}

// Whatever a file says, requests for its name end, and say which file it is; what they show does no
// harm to a terminal or to JSON; the file stays as it is; and other names go on.
func TestHostileFiles(t *testing.T) {
	s := openTest(t, t.TempDir())
	granted(t, s, "good", time.Hour)
	granted(t, s, "bad", time.Hour)
	contents, err := os.ReadFile(s.pathOf("bad"))
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range spoil(string(contents)) {
		t.Run(what, func(t *testing.T) {
			writeFile(t, s.pathOf("bad"), text)
			useHostile(t, s, shown[what])
			if after, _ := os.ReadFile(s.pathOf("bad")); string(after) != text && !shown[what] {
				t.Errorf("the file was changed to %q", after)
			}
			if err := os.Remove(s.pathOf("bad")); err != nil && !shown[what] {
				t.Fatal(err)
			}
			next(t, s, "bad")
		})
	}
}

// useHostile makes every request for the name "bad", and checks what it shows.
func useHostile(t *testing.T, s *Store, isShown bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	check := func(what string, err error) {
		t.Helper()
		switch {
		case err == nil && isShown:
		case !errors.Is(err, driver.ErrCorrupt):
			t.Errorf("%s: %v", what, err)
		case !strings.Contains(err.Error(), s.pathOf("bad")) || strings.ContainsFunc(err.Error(), unicode.IsControl):
			t.Errorf("the error of %s is %q", what, err)
		}
	}
	now, err := s.Renew(ctx, []driver.RenewRequest{{Name: "bad", Owner: "x", TTL: time.Hour}})
	check("Renew", err)
	if err != nil && now[0].State != driver.Unknown {
		t.Errorf("Renew is answered %v", now)
	}
	_, err = s.Release(ctx, driver.ReleaseRequest{Name: "bad", Owner: "x"})
	check("Release", err)
	records, err := s.Lookup(ctx, "bad")
	check("Lookup", err)
	checkShown(t, records...)
	seen := map[string]int{}
	for rec, err := range s.List(ctx, "") {
		if err != nil {
			check("List", err)
		}
		checkShown(t, rec)
		seen[rec.Name]++
	}
	if seen["good"] != 1 || !isShown && seen[""] != 1 {
		t.Errorf("List yields %v", seen)
	}
	res, err := s.Acquire(ctx, request("bad", time.Hour))
	check("Acquire", err)
	checkShown(t, res.Held)
	records, err = s.Break(ctx, "bad", 0)
	check("Break", err)
	checkShown(t, records...)
	next(t, s, "another")
	if isShown {
		next(t, s, "bad")
	}
}

// checkShown checks that records can be shown.
func checkShown(t *testing.T, records ...driver.Record) {
	t.Helper()
	for _, rec := range records {
		texts := []string{rec.Name, rec.Holder}
		for key, value := range rec.Metadata {
			texts = append(texts, key, value)
		}
		for _, text := range texts {
			if strings.ContainsFunc(text, unicode.IsControl) {
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
}

// Nothing in the folder that is no file of the store does harm, and no link or pipe is followed. No
// file is written that has another name elsewhere.
func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, filepath.Join(dir, "locks"))
	granted(t, s, "good", time.Hour)
	in := func(file string) string { return filepath.Join(s.dir, file) }
	outside := filepath.Join(dir, "outside")
	writeFile(t, outside, "precious")
	writeFile(t, in("README"), "hello")
	err := errors.Join(
		os.MkdirAll(s.pathOf("folder"), 0o700),
		os.Symlink(s.pathOf("good"), s.pathOf("near")),
		os.Symlink(outside, s.pathOf("far")),
		syscall.Mkfifo(s.pathOf("pipe"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	names, failures := 0, 0
	for rec, err := range s.List(t.Context(), "") {
		if err != nil {
			failures++
		} else if rec.Name == "good" {
			names++
		}
	}
	if names != 1 || failures != 4 {
		t.Errorf("List yields the name %d times and %d errors, want 1 and 4", names, failures)
	}
	for _, name := range []string{"folder", "near", "far", "pipe"} {
		if _, err := s.Acquire(t.Context(), request(name, time.Hour)); err == nil || !strings.Contains(err.Error(), s.pathOf(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	next(t, openTest(t, s.dir), "another")
	for path, want := range map[string]string{in("README"): "hello", outside: "precious"} {
		if text, err := os.ReadFile(path); string(text) != want {
			t.Errorf("%s has %q, %v", path, text, err)
		}
	}
}

// A member of the group puts another name of a file of the process, such as one of root, in the
// place of each file that is written in place. It is not written, and keeps its permissions.
func TestOtherNames(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "locks")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.Chmod(folder, 0o770)); err != nil {
		t.Fatal(err)
	}
	s, other := openTest(t, folder), openTest(t, folder)
	held, _ := granted(t, s, "name", time.Hour)
	waiting(t, other, request("name", time.Hour))
	empty, appended := filepath.Join(dir, "empty"), filepath.Join(dir, "appended")
	writeFile(t, empty, "")
	writeFile(t, appended, "")
	replaced := filepath.Join(folder, other.sessionFile())
	if err := errors.Join(os.Remove(replaced), os.Link(appended, replaced)); err != nil {
		t.Fatal(err)
	}
	released(t, s, held)
	for i := range shardCount {
		path := filepath.Join(folder, shardFile(i))
		_ = os.Remove(path)
		if err := os.Link(empty, path); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := openTest(t, folder).Acquire(ctx, request("another", time.Hour))
	wantError(t, err, driver.ErrCorrupt, folder)
	for _, path := range []string{empty, appended} {
		if text, err := os.ReadFile(path); len(text) > 0 || err != nil {
			t.Errorf("the file has %q, %v", text, err)
		}
		checkMode(t, path, 0o600)
	}
}

// A member of the group moves a private file of the process, such as one of root, into the place of
// a file that is written in place. It is not written, and keeps its permissions.
func TestMovedFiles(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "locks")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.Chmod(folder, 0o770)); err != nil {
		t.Fatal(err)
	}
	s, other := openTest(t, folder), openTest(t, folder)
	held, _ := granted(t, s, "name", time.Hour)
	waiting(t, other, request("name", time.Hour))
	move := func(path, text string) {
		t.Helper()
		private := filepath.Join(dir, "private")
		writeFile(t, private, text)
		if err := os.Rename(private, path); err != nil {
			t.Fatal(err)
		}
	}
	unharmed := func(path string) {
		t.Helper()
		if text, err := os.ReadFile(path); string(text) != "precious\n" {
			t.Errorf("the file has %q, %v", text, err)
		}
		checkMode(t, path, 0o600)
	}
	session, lock := filepath.Join(folder, other.sessionFile()), s.pathOf("another")
	move(session, "precious\n")
	released(t, s, held)
	unharmed(session)
	move(lock, "precious\n")
	_, err := openTest(t, folder).Acquire(t.Context(), request("another", time.Hour))
	wantError(t, err, driver.ErrCorrupt, lock)
	unharmed(lock)

	move(lock, "")
	log, err := os.OpenFile(lock, os.O_WRONLY, 0) // by a program that writes to it later
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	next(t, openTest(t, folder), "another")
	checkMode(t, lock, 0o660)
	if info, err := log.Stat(); err != nil || info.Mode() != 0o600 || info.Size() > 0 {
		t.Errorf("the file has the permissions %v and %d bytes, %v", info.Mode(), info.Size(), err)
	}

	for _, old := range []string{strings.Repeat("precious", headerSize), strings.Repeat("\x00", 3*pageSize)} {
		move(s.pathOf("old"), old)
		if err := os.Chtimes(s.pathOf("old"), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		_, err = s.Acquire(t.Context(), request("old", time.Hour))
		wantError(t, err, driver.ErrCorrupt, s.pathOf("old"))
		if text, err := os.ReadFile(s.pathOf("old")); string(text) != old {
			t.Errorf("the file has %.99q, %v", text, err)
		}
	}
}

// A session with another name elsewhere, as after "cp -al", is not taken for that of a dead
// process.
func TestLinkedSession(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	granted(t, s, "name", time.Hour)
	session := filepath.Join(dir, s.sessionFile())
	if err := os.Link(session, filepath.Join(t.TempDir(), "copy")); err != nil {
		t.Fatal(err)
	}
	_, err := openTest(t, dir).Acquire(t.Context(), request("name", time.Hour))
	wantError(t, err, driver.ErrCorrupt, session)
}

// A private file that a member of the group moves to where a session is being made keeps its
// permissions.
func TestFileInTheWayOfASession(t *testing.T) {
	dir := t.TempDir()
	folder, private := filepath.Join(dir, "locks"), filepath.Join(dir, "private")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.Chmod(folder, 0o770)); err != nil {
		t.Fatal(err)
	}
	writeFile(t, private, "precious\n")
	before, err := os.Stat(private)
	if err != nil {
		t.Fatal(err)
	}
	f, _, err := openTest(t, folder).currentFolder(true)
	if err != nil {
		t.Fatal(err)
	}
	moved := make(chan error)
	go func() {
		for {
			files, err := os.ReadDir(folder)
			for _, file := range files {
				if strings.HasSuffix(file.Name(), ".new") && os.Link(private, filepath.Join(dir, "link")) == nil {
					err = os.Rename(filepath.Join(dir, "link"), filepath.Join(folder, file.Name()))
				}
			}
			select {
			case moved <- err:
				return
			default:
			}
		}
	}()
	for range 500 {
		if s, err := f.openSession(); err == nil {
			if info, err := s.file.Stat(); err != nil || os.SameFile(info, before) {
				t.Fatalf("the private file is the session: %v", err)
			}
			s.close()
		}
	}
	if err := <-moved; err != nil {
		t.Error(err)
	}
	checkMode(t, private, 0o600)
}

// A member of the group writes what is no notice into the file of a session. The notices behind it
// come all the same.
func TestGarbageInASession(t *testing.T) {
	s := openTest(t, t.TempDir())
	granted(t, s, "name", time.Hour)
	req := waiting(t, s, request("name", time.Hour))
	notices := told(t, s, req.Owner)
	garbage := strings.Repeat("x", 10_000) + "\n\n\x00 -9\n" + newActor("", req.Owner).hash + " 9z\n" + strings.Repeat("y 1 ", 1000) + "\n"
	if _, err := s.Session().WriteString(garbage); err != nil {
		t.Fatal(err)
	}
	if _, err := openTest(t, s.dir).Break(t.Context(), "name", 0); err != nil {
		t.Fatal(err)
	}
	awaitTurn(t, "the next", s, req, notices)
}

// A folder of an older version is refused, and stays as it is. That of another program is not.
func TestOldFolder(t *testing.T) {
	s := openTest(t, t.TempDir())
	writeFile(t, filepath.Join(s.dir, ".lock-waf_linux_build"), "")
	granted(t, s, "name", time.Hour)
	for _, older := range []string{"sessions", ".lock-07"} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, older), 0o700); err != nil {
			t.Fatal(err)
		}
		s := openTest(t, dir)
		for _, do := range []func() error{
			func() error { _, err := s.Acquire(t.Context(), request("name", time.Hour)); return err },
			func() error { _, err := s.Lookup(t.Context(), "name"); return err },
		} {
			wantError(t, do(), driver.ErrUnsupported, dir, "older version", "delete")
		}
		if left := files(t, dir); len(left) != 1 {
			t.Errorf("the folder has %q", left)
		}
	}
}

// A file that gets another name while it is open is not written any more.
func TestOtherNameOfAnOpenFile(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	held, _ := granted(t, s, "name", time.Hour)
	path := s.pathOf("name")
	former, err := os.ReadFile(path)
	if err = errors.Join(err, os.Link(path, dir+"-copy")); err != nil {
		t.Fatal(err)
	}
	_, err = s.Renew(t.Context(), []driver.RenewRequest{{Name: held.Name, Owner: held.Owner, TTL: 2 * time.Hour}})
	wantError(t, err, driver.ErrCorrupt, path)
	if text, err := os.ReadFile(dir + "-copy"); err != nil || !bytes.Equal(text, former) {
		t.Errorf("it was written, %v", err)
	}
	if err := os.Remove(dir + "-copy"); err != nil {
		t.Fatal(err)
	}
	released(t, s, held)
}

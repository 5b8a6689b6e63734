//go:build unix

package filestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storecheck"
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
		"an odd session":  regexp.MustCompile(`"session":"...`).ReplaceAllString(contents, `"session":"`+"\x1b\x9b\x00"),
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
			check := func(verb string, err error) {
				t.Helper()
				switch {
				case err == nil && shown[what]:
				case !errors.Is(err, driver.ErrCorrupt):
					t.Errorf("%s: %v", verb, err)
				case !strings.Contains(err.Error(), s.pathOf("bad")) || strings.ContainsFunc(err.Error(), unicode.IsControl):
					t.Errorf("the error of %s is %q", verb, err)
				}
			}
			seen := map[string]int{}
			for rec, err := range s.List(t.Context(), "") {
				if seen[rec.Name]++; rec.Name != "good" {
					check("List", err)
				}
				_, err = json.Marshal(rec)
				if text := rec.Name + rec.Holder + fmt.Sprint(rec.Metadata); err != nil || strings.ContainsFunc(text, unicode.IsControl) {
					t.Errorf("what is shown is %q, %v", text, err)
				}
				if rec.Remaining < 0 || rec.Token < 0 || rec.Token > driver.MaxToken {
					t.Errorf("the record is out of range: %+v", rec)
				}
			}
			if seen["good"] != 1 || !shown[what] && seen[""] != 1 {
				t.Errorf("List yields %v", seen)
			}
			for verb, call := range storecheck.Calls(s, request("bad", time.Hour)) {
				check(verb, call(t.Context()))
			}
			if after, _ := os.ReadFile(s.pathOf("bad")); string(after) != text && !shown[what] {
				t.Errorf("the file was changed to %q", after)
			}
			next(t, s, "another")
			if err := os.Remove(s.pathOf("bad")); err != nil {
				t.Fatal(err)
			}
			next(t, s, "bad")
		})
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

// A member of the group puts a private file of the process, such as one of root, or another name of
// it, in the place of each file that is written in place. It is not written, and keeps its
// permissions.
func TestMovedFiles(t *testing.T) {
	for what, text := range map[string]string{
		"an empty file": "", "a line": "precious\n", "a long text": strings.Repeat("precious", headerSize), "zeros": strings.Repeat("\x00", 3*pageSize),
	} {
		for how, put := range map[string]func(file, path string) error{"linked": os.Link, "moved": os.Rename} {
			t.Run(what+" that is "+how, func(t *testing.T) {
				dir := t.TempDir()
				folder := makeDir(t, filepath.Join(dir, "locks"), os.Geteuid(), 0o770)
				s, other := openTest(t, folder), openTest(t, folder)
				held, _ := granted(t, s, "name", time.Hour)
				waiting(t, other, request("name", time.Hour))
				shard, session := s.pathOf("another"), filepath.Join(folder, other.sessionFile())
				var private []*os.File
				for i, path := range []string{shard, session} {
					file := filepath.Join(dir, fmt.Sprint("private", i))
					writeFile(t, file, text)
					opened, err := os.Open(file)
					_ = os.Remove(path)
					if err := errors.Join(err, os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)), put(file, path)); err != nil {
						t.Fatal(err)
					}
					defer opened.Close()
					private = append(private, opened)
				}
				released(t, s, held)
				if made := openTest(t, folder); text == "" && how == "moved" { // It is as one whose maker was killed.
					next(t, made, "another")
				} else {
					_, err := made.Acquire(t.Context(), request("another", time.Hour))
					wantError(t, err, driver.ErrCorrupt, shard)
				}
				for _, file := range private {
					info, err := file.Stat()
					if after, _ := io.ReadAll(file); string(after) != text || err != nil || info.Mode() != 0o600 {
						t.Errorf("%s has the permissions %v and %.99q", file.Name(), info.Mode(), after)
					}
				}
			})
		}
	}
}

// A file of the store that gets another name elsewhere, as by "cp -al", is an error that names it:
// locks are not written any more, and a session is not taken for that of a dead process. All that
// can be read is listed, and what it holds can be broken.
func TestOtherNames(t *testing.T) {
	s := openTest(t, t.TempDir())
	held, _ := granted(t, s, "name", time.Hour)
	granted(t, s, "other", time.Hour)
	renewal := []driver.RenewRequest{{Name: held.Name, Owner: held.Owner, TTL: 2 * time.Hour}}
	for path, request := range map[string]func() error{
		s.pathOf("name"): func() error { _, err := s.Renew(t.Context(), renewal); return err },
		filepath.Join(s.dir, s.sessionFile()): func() error {
			listed, other := map[string]int{}, openTest(t, s.dir)
			for rec := range other.List(t.Context(), "") {
				listed[rec.Name]++
			}
			if broken, err := other.Break(t.Context(), "other", 0); len(broken) != 1 || err != nil || listed["name"] != 1 || listed["other"] != 1 || listed[""] != 2 {
				t.Errorf("%v are listed, and broken is %v, %v", listed, broken, err)
			}
			_, err := other.Acquire(t.Context(), request("name", time.Hour))
			return err
		},
	} {
		former, _ := os.ReadFile(s.pathOf("name"))
		if err := os.Link(path, s.dir+"-copy"); err != nil {
			t.Fatal(err)
		}
		wantError(t, request(), driver.ErrCorrupt, path)
		if text, err := os.ReadFile(s.pathOf("name")); err != nil || !bytes.Equal(text, former) {
			t.Errorf("it was written, %v", err)
		}
		if err := os.Remove(s.dir + "-copy"); err != nil {
			t.Fatal(err)
		}
	}
	released(t, s, held)
}

// A member of the group writes what is no notice into the file of a session. The notices behind it
// come all the same.
func TestGarbageInASession(t *testing.T) {
	s := openTest(t, t.TempDir())
	granted(t, s, "name", time.Hour)
	req := waiting(t, s, request("name", time.Hour))
	notices := told(t, s, req.Owner)
	garbage := strings.Repeat("x", 10_000) + "\n\n\x00 -9\n" + hashOf(req.Owner) + " 9z\n" + strings.Repeat("y 1 ", 1000) + "\n"
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
		s := openTest(t, dir)
		if err := os.Mkdir(filepath.Join(dir, older), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, do := range []func() error{
			func() error { _, err := s.Acquire(t.Context(), request("name", time.Hour)); return err },
			func() error { _, err := s.Lookup(t.Context(), "name"); return err },
			func() error { _, err := New(dir, nil); return err },
		} {
			wantError(t, do(), driver.ErrUnsupported, dir, "older version", "delete")
		}
		if left := files(t, dir); len(left) != 1 {
			t.Errorf("the folder has %q", left)
		}
	}
}

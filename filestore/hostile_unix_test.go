//go:build unix

package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A setup is a documented way to share a folder: it belongs to owner, has mode,
// and is used by victim while attacker may write in it.
type setup struct {
	owner, victim, attacker uint32
	mode                    fs.FileMode
}

// setups has every documented way in which one user meets another in a folder.
// In a process that is not root all of them are the same user.
var setups = map[string]setup{
	"root in a user's folder":  {owner: alice, victim: 0, attacker: alice, mode: 0o700},
	"user in a user's folder":  {owner: alice, victim: bob, attacker: alice, mode: 0o777},
	"members of a group, 2770": {owner: 0, victim: bob, attacker: alice, mode: 0o770 | fs.ModeSetgid},
	"shared by all, 1777":      {owner: 0, victim: bob, attacker: alice, mode: 0o777 | fs.ModeSticky},
	"root where all share":     {owner: 0, victim: 0, attacker: alice, mode: 0o777 | fs.ModeSticky},
}

// group has alice and bob as members.
const group = 65531

// chown gives a file to a user, if this process can.
func chown(tb testing.TB, path string, user, group uint32) {
	tb.Helper()
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Lchown(path, int(user), int(group)); err != nil {
		tb.Fatal(err)
	}
}

// makeDir makes a folder of a user.
func makeDir(tb testing.TB, path string, user uint32, mode fs.FileMode) string {
	tb.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		tb.Fatal(err)
	}
	chown(tb, path, user, group)
	if err := os.Chmod(path, mode); err != nil {
		tb.Fatal(err)
	}
	return path
}

// link makes a symbolic link of a user.
func link(tb testing.TB, target, path string, user uint32) {
	tb.Helper()
	if err := os.Symlink(target, path); err != nil {
		tb.Fatal(err)
	}
	chown(tb, path, user, group)
}

// The names of files that a sweep would delete if they were in the store.
const (
	idleRecord  = "idle.json"
	deadSession = "00112233445566778899aabbccddeeff"
	secret      = "secret"
	emptyFile   = "empty"
)

// makeVictim makes a private folder of a user, with files in it that a store
// would delete or change.
func makeVictim(tb testing.TB, path string, user uint32) string {
	tb.Helper()
	makeDir(tb, path, user, 0o700)
	for name, text := range map[string]string{
		idleRecord:  `{"holdfast":1,"name":"idle","state":"free","token":7}` + "\n",
		deadSession: `{"holdfast":1,"pid":1}` + "\n",
		secret:      "private",
		emptyFile:   "",
	} {
		file := filepath.Join(path, name)
		writeFile(tb, file, text)
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(file, old, old); err != nil {
			tb.Fatal(err)
		}
		chown(tb, file, user, user)
	}
	return path
}

// snapshot describes every file beneath path: type, permissions, owner, contents.
func snapshot(tb testing.TB, path string) map[string]string {
	tb.Helper()
	seen := map[string]string{}
	err := filepath.WalkDir(path, func(file string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(file)
		if err != nil {
			return err
		}
		var data []byte
		if info.Mode().IsRegular() {
			if data, err = os.ReadFile(file); err != nil {
				return err
			}
		}
		stat := info.Sys().(*syscall.Stat_t)
		seen[file] = fmt.Sprintf("%v %d:%d %q", info.Mode(), stat.Uid, stat.Gid, data)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return seen
}

// unchanged checks that nothing beneath path was made, changed or removed.
func unchanged(tb testing.TB, path string, before map[string]string) {
	tb.Helper()
	after := snapshot(tb, path)
	for _, file := range slices.Sorted(maps.Keys(after)) {
		if was, ok := before[file]; !ok {
			tb.Errorf("%s was made: %s", file, after[file])
		} else if was != after[file] {
			tb.Errorf("%s was changed from %s to %s", file, was, after[file])
		}
	}
	for file := range before {
		if _, ok := after[file]; !ok {
			tb.Errorf("%s was removed", file)
		}
	}
}

// attempt runs the role "attempt" as a user and returns what it printed.
func (s stage) attempt(t *testing.T, user uint32, dir, name string) string {
	t.Helper()
	c := s.as(t, user, "attempt", dir, name)
	line := c.line()
	c.finish()
	return line
}

// roleAttempt acquires a name, lists, looks up, sweeps everything that is idle,
// and prints "granted" or the error of the acquisition.
func roleAttempt(args []string) error {
	syscall.Umask(0)
	dir, name := args[0], args[1]
	if dir == "" {
		var err error
		if dir, err = DefaultDir(); err != nil {
			return err
		}
	}
	s, err := New(dir, nil)
	if err != nil {
		fmt.Println(err)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req := request(name, time.Hour)
	res, err := s.Acquire(ctx, req)
	for range s.List(ctx, "") {
		continue
	}
	_, _, _ = s.Lookup(ctx, name)
	s.sweepIdle(ctx, 0)
	switch {
	case err != nil:
		fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
	case res.Granted:
		_, _ = s.Release(ctx, driver.ReleaseRequest{Name: name, Owner: req.Owner})
		fmt.Println("granted")
	default:
		fmt.Println("held")
	}
	_ = s.Close()
	return nil
}

// TestLinkedFolders: a link in the place of locks or sessions is refused, and
// nothing is made, changed or removed behind it.
func TestLinkedFolders(t *testing.T) {
	for what, use := range setups {
		for _, name := range []string{locksFolder, sessionsFolder} {
			t.Run(what+", "+name, func(t *testing.T) {
				stage := newStage(t)
				victim := makeVictim(t, filepath.Join(stage.dir, "private"), use.victim)
				dir := makeDir(t, filepath.Join(stage.dir, "folder"), use.owner, use.mode)
				link(t, victim, filepath.Join(dir, name), use.attacker)
				before := snapshot(t, victim)
				line := stage.attempt(t, use.victim, dir, "name")
				unchanged(t, victim, before)
				for _, text := range []string{filepath.Join(dir, name), "symbolic link", "remove"} {
					if !strings.Contains(line, text) {
						t.Errorf("the error does not mention %q: %s", text, line)
					}
				}
			})
		}
	}
}

// TestLinkedFiles: a link in the place of a file is refused.
func TestLinkedFiles(t *testing.T) {
	for what, use := range setups {
		for _, name := range []string{tokensFile, filepath.Join(locksFolder, "name.json")} {
			t.Run(what+", "+name, func(t *testing.T) {
				stage := newStage(t)
				victim := makeVictim(t, filepath.Join(stage.dir, "private"), use.victim)
				dir := makeDir(t, filepath.Join(stage.dir, "folder"), use.owner, use.mode)
				if line := stage.attempt(t, use.attacker, dir, "another"); line != "granted" {
					t.Fatal(line)
				}
				_ = os.Remove(filepath.Join(dir, name))
				link(t, filepath.Join(victim, emptyFile), filepath.Join(dir, name), use.attacker)
				before := snapshot(t, victim)
				line := stage.attempt(t, use.victim, dir, "name")
				unchanged(t, victim, before)
				for _, text := range []string{filepath.Join(dir, name), "symbolic link"} {
					if !strings.Contains(line, text) {
						t.Errorf("the error does not mention %q: %s", text, line)
					}
				}
			})
		}
	}
}

// TestLinkAbove: a link on the way to the folder is followed if root or the user
// has made it where nobody else can replace it, and refused otherwise.
func TestLinkAbove(t *testing.T) {
	stage := newStage(t)
	victim := makeVictim(t, filepath.Join(stage.dir, "private"), 0)
	own := makeDir(t, filepath.Join(stage.dir, "own"), alice, 0o700)
	link(t, own, filepath.Join(stage.dir, "by-root"), 0)
	if line := stage.attempt(t, alice, filepath.Join(stage.dir, "by-root", "new", "folder"), "name"); line != "granted" {
		t.Errorf("through a link of root: %s", line)
	}
	link(t, "new", filepath.Join(own, "relative"), alice)
	if line := stage.attempt(t, alice, filepath.Join(own, "relative", "..", "relative", "folder"), "name"); line != "granted" {
		t.Errorf("through a link of one's own: %s", line)
	}
	if _, err := os.Stat(filepath.Join(own, "new", "folder", locksFolder)); err != nil {
		t.Error(err)
	}
	link(t, victim, filepath.Join(own, "trap"), alice)
	if os.Geteuid() != 0 {
		return // Every link is this user's own.
	}
	before := snapshot(t, victim)
	for _, dir := range []string{filepath.Join(own, "trap"), filepath.Join(own, "trap", "deeper", "still")} {
		line := stage.attempt(t, 0, dir, "name")
		for _, text := range []string{filepath.Join(own, "trap"), "symbolic link", "real path"} {
			if !strings.Contains(line, text) {
				t.Errorf("through a link of another: the error does not mention %q: %s", text, line)
			}
		}
	}
	unchanged(t, victim, before)

	// A link of root is no better where a neighbor can move it.
	open := makeDir(t, filepath.Join(stage.dir, "open"), alice, 0o777)
	link(t, victim, filepath.Join(open, "moved"), 0)
	if line := stage.attempt(t, 0, filepath.Join(open, "moved"), "name"); !strings.Contains(line, "symbolic link") {
		t.Errorf("through a link of root in a user's folder: %s", line)
	}
	unchanged(t, victim, before)

	// The owner of a folder can move it, even if nobody else may write there.
	closed := makeDir(t, filepath.Join(stage.dir, "closed"), alice, 0o755)
	link(t, victim, filepath.Join(closed, "moved"), 0)
	if line := stage.attempt(t, 0, filepath.Join(closed, "moved"), "name"); !strings.Contains(line, "symbolic link") {
		t.Errorf("through a link of root in a folder that a user owns: %s", line)
	}
	unchanged(t, victim, before)

	// Nor is one that may be a second name of a link elsewhere.
	sticky := makeDir(t, filepath.Join(stage.dir, "sticky"), 0, 0o777|fs.ModeSticky)
	link(t, victim, filepath.Join(stage.dir, "elsewhere"), 0)
	if err := os.Link(filepath.Join(stage.dir, "elsewhere"), filepath.Join(sticky, "second")); err != nil {
		t.Fatal(err)
	}
	if line := stage.attempt(t, 0, filepath.Join(sticky, "second"), "name"); !strings.Contains(line, "symbolic link") {
		t.Errorf("through a second name of a link of root: %s", line)
	}

	// Where all may make links, that of root is good, and that of another is not.
	link(t, victim, filepath.Join(sticky, "of-alice"), alice)
	if line := stage.attempt(t, 0, filepath.Join(sticky, "of-alice"), "name"); !strings.Contains(line, "symbolic link") {
		t.Errorf("through a link of a user where all may make some: %s", line)
	}
	link(t, own, filepath.Join(sticky, "of-root"), 0)
	if line := stage.attempt(t, 0, filepath.Join(sticky, "of-root", "again"), "name"); line != "granted" {
		t.Errorf("through a link of root where all may make some: %s", line)
	}
	unchanged(t, victim, before)
}

// TestLinkOfHostRoot: in a user namespace, root of the host has the number of the
// owner of "/". Its links are followed near "/", where nobody else makes any. The
// number of other users is the same, so that links elsewhere are refused.
func TestLinkOfHostRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not root: every link is this user's own")
		return
	}
	const hostRoot = bob
	top := makeDir(t, filepath.Join(newStage(t).dir, "top"), hostRoot, 0o755)
	for path, mode := range map[string]fs.FileMode{
		"run": 0o755, "var": 0o755, "home": 0o755, "home/user": 0o700, "group": 0o775, "tmp": 0o777 | fs.ModeSticky,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(top, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(top, path)
		_ = os.Mkdir(dir, 0o700)
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		chown(t, dir, hostRoot, group)
		link(t, "/run", filepath.Join(dir, "link"), hostRoot)
	}
	link(t, "run", filepath.Join(top, "link"), hostRoot)
	link(t, "/run", filepath.Join(top, "of-alice"), alice)
	begin, err := openFolder(top, false)
	if err != nil {
		t.Fatal(err)
	}
	defer begin.close()
	for path, follow := range map[string]bool{
		"/link": true, "/var/link": true, "/home/link": true, "/var/../var/link/.": true, "/of-alice": false,
		"/home/user/link": false, "/group/link": false, "/tmp/link": false,
	} {
		found, err := begin.walkTo(path, false)
		if err == nil {
			if !found.isAtPath(filepath.Join(top, "run")) {
				t.Errorf("%s does not lead to /run", path)
			}
			found.close()
		}
		if follow && err != nil {
			t.Errorf("%s is not followed: %v", path, err)
		}
		if !follow && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s is not refused: %v", path, err)
		}
	}
}

// TestEmptyRecordOfAnother: in a sticky folder an empty record of another user, which
// this one may not delete, is a free name.
func TestEmptyRecordOfAnother(t *testing.T) {
	stage := newStage(t)
	const mode = 0o777 | fs.ModeSticky
	dir := makeDir(t, filepath.Join(stage.dir, "folder"), 0, mode)
	locks := makeDir(t, filepath.Join(dir, locksFolder), 0, mode)
	path := filepath.Join(locks, "name.json")
	writeFile(t, path, "")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	chown(t, path, alice, group)
	if line := stage.attempt(t, bob, dir, "name"); line != "granted" {
		t.Error(line)
	}
}

// TestWritableByOthers: in a folder that all may write, and not its group, files may
// belong to anybody.
func TestWritableByOthers(t *testing.T) {
	stage := newStage(t)
	dir := makeDir(t, filepath.Join(stage.dir, "folder"), 0, 0o757)
	chown(t, dir, 0, 0)
	for _, user := range []uint32{alice, bob, alice} {
		if line := stage.attempt(t, user, dir, "name"); line != "granted" {
			t.Errorf("as user %d: %s", user, line)
		}
	}
}

// TestCreatedLocked: a new file is locked before it is returned, so that others who
// find it empty do not take it for one that a crash has left.
func TestCreatedLocked(t *testing.T) {
	s := openTest(t, t.TempDir())
	f, err := s.retainFolder(true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.release()
	made, err := f.createFile(f.locks, "name.json")
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	other, err := f.locks.open("name.json", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := tryLock(other, exclusive); !errors.Is(err, errLocked) {
		t.Errorf("another can lock it: %v", err)
	}
}

// TestReplacedFolder: a folder that may not be the one that was just made gets
// neither an owner nor permissions.
func TestReplacedFolder(t *testing.T) {
	stage := newStage(t)
	full := makeDir(t, filepath.Join(stage.dir, "full"), 0, 0o700)
	writeFile(t, filepath.Join(full, secret), "private")
	paths := []string{full}
	if os.Geteuid() == 0 {
		paths = append(paths, makeDir(t, filepath.Join(stage.dir, "of-bob"), bob, 0o700))
	}
	like := makeDir(t, filepath.Join(stage.dir, "folder"), alice, 0o777)
	info, err := os.Stat(like)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		before := snapshot(t, path)
		d, err := openFolder(path, false)
		if err != nil {
			t.Fatal(err)
		}
		defer d.close()
		if err := d.setOwnerAndMode(0o777, attributesOf(info)); err == nil || !strings.Contains(err.Error(), "replaced") {
			t.Errorf("%s is taken for a new folder: %v", path, err)
		}
		unchanged(t, path, before)
	}
}

// TestForeignHome: root with the home directory of a user makes nothing outside
// that directory, and what it makes is the user's.
func TestForeignHome(t *testing.T) {
	for _, trap := range []string{"", ".local", filepath.Join(".local", "state"), filepath.Join(".local", "state", "holdfast")} {
		stage := newStage(t)
		victim := makeVictim(t, filepath.Join(stage.dir, "private"), 0)
		home := makeDir(t, filepath.Join(stage.dir, "home"), alice, 0o700)
		t.Setenv("HOME", home)
		dir, err := DefaultDir()
		if err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS != "linux" && trap != "" {
			continue // The folder is elsewhere; the walk to it is the same.
		}
		if trap == "" {
			if line := stage.attempt(t, 0, "", "name"); line != "granted" {
				t.Error(line)
			}
			for path, text := range snapshot(t, home) {
				if os.Geteuid() == 0 && !strings.Contains(text, fmt.Sprintf(" %d:", alice)) {
					t.Errorf("%s is not the user's: %s", path, text)
				}
			}
			if line := stage.attempt(t, alice, dir, "name"); line != "granted" {
				t.Errorf("the user cannot use it: %s", line)
			}
			continue
		}
		path := filepath.Join(home, trap)
		if parent := filepath.Dir(path); parent != home {
			if err := os.MkdirAll(parent, 0o700); err != nil {
				t.Fatal(err)
			}
			for at := parent; at != home; at = filepath.Dir(at) {
				chown(t, at, alice, group)
			}
		}
		if os.Geteuid() != 0 {
			continue // Every link is this user's own.
		}
		link(t, victim, path, alice)
		before := snapshot(t, victim)
		if line := stage.attempt(t, 0, "", "name"); !strings.Contains(line, "symbolic link") {
			t.Errorf("with a link at %s: %s", trap, line)
		}
		unchanged(t, victim, before)
	}
}

// TestSwappedFolders: a neighbor who replaces what the store is just making by
// links to private files and folders gets nowhere.
func TestSwappedFolders(t *testing.T) {
	const rounds = 6
	for what, use := range setups {
		t.Run(what, func(t *testing.T) {
			stage := newStage(t)
			private := makeVictim(t, filepath.Join(stage.dir, "private"), use.victim)
			base := makeDir(t, filepath.Join(stage.dir, "base"), 0, 0o755)
			before := snapshot(t, private)
			attacker := stage.as(t, use.attacker, "swap", base, private)
			for i := range rounds {
				dir := makeDir(t, filepath.Join(base, fmt.Sprint("folder", i)), use.owner, use.mode)
				stage.attempt(t, use.victim, dir, "name")
				if use.mode.Perm() == 0o700 && os.Geteuid() == 0 {
					// The folders above the store's are attacked, too. (Links of
					// the same user would be followed there.)
					stage.attempt(t, use.victim, filepath.Join(dir, "one", "two"), "name")
				}
			}
			attacker.in.Close()
			swaps := attacker.number()
			unchanged(t, private, before)
			if swaps == 0 && use.mode&fs.ModeSticky == 0 {
				t.Error("the neighbor has replaced nothing: this test shows nothing")
			}
		})
	}
}

// roleSwap replaces what appears in the folders of a folder, again and again, by
// links into a private folder, until its input ends. Then it prints how often it
// could.
func roleSwap(args []string) error {
	base, private := args[0], args[1]
	ended := make(chan struct{})
	go func() {
		_ = awaitEOF()
		close(ended)
	}()
	swaps := 0
	targets := []string{private, filepath.Join(private, secret), filepath.Join(private, emptyFile)}
	for turn := 0; ; turn++ {
		select {
		case <-ended:
			fmt.Println(swaps)
			return nil
		default:
		}
		folders, err := os.ReadDir(base)
		if err != nil {
			return err
		}
		if len(folders) == 0 {
			continue
		}
		newest := slices.MaxFunc(folders, func(a, b fs.DirEntry) int {
			return len(a.Name())*1000 + strings.Compare(a.Name(), b.Name()) - len(b.Name())*1000
		})
		for _, dir := range []string{newest.Name(), newest.Name() + "/one", newest.Name() + "/locks", newest.Name() + "/sessions"} {
			dir = filepath.Join(base, dir)
			if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
				continue // The link is one of its own.
			}
			entries, _ := os.ReadDir(dir)
			for i, entry := range entries {
				path := filepath.Join(dir, entry.Name())
				if entry.Type() == fs.ModeSymlink {
					_ = os.Remove(path)
					continue
				}
				if os.Rename(path, fmt.Sprintf("%s/moved%d-%d", dir, turn, i)) != nil {
					continue
				}
				if os.Symlink(targets[turn%len(targets)], path) == nil {
					swaps++
				}
			}
		}
	}
}

// TestForeignFolders: locks or sessions of a third user is refused in a folder
// where that user cannot have made it.
func TestForeignFolders(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not root: every folder is this user's own")
		return
	}
	for _, name := range []string{locksFolder, sessionsFolder} {
		stage := newStage(t)
		dir := makeDir(t, filepath.Join(stage.dir, "folder"), alice, 0o755)
		path := makeDir(t, filepath.Join(dir, name), bob, 0o777)
		for _, user := range []uint32{alice, 0} {
			line := stage.attempt(t, user, dir, "name")
			for _, text := range []string{path, fmt.Sprint(bob), "chown"} {
				if !strings.Contains(line, text) {
					t.Errorf("as %d the error does not mention %q: %s", user, text, line)
				}
			}
		}
		if left := files(t, path); len(left) > 0 {
			t.Errorf("there are %q in a foreign folder", left)
		}
	}
}

// TestHardLinks: a private file that was given another name in the folder stays
// as it is.
func TestHardLinks(t *testing.T) {
	for what, use := range setups {
		t.Run(what, func(t *testing.T) {
			stage := newStage(t)
			private := makeVictim(t, filepath.Join(stage.dir, "private"), use.victim)
			dir := makeDir(t, filepath.Join(stage.dir, "folder"), use.owner, use.mode)
			if line := stage.attempt(t, use.attacker, dir, "another"); line != "granted" {
				t.Fatal(line)
			}
			before := snapshot(t, private)
			// This is what the neighbor does where fs.protected_hardlinks is 0.
			plant := func(name, place string) string {
				path := filepath.Join(dir, place)
				_ = os.Remove(path)
				if err := os.Link(filepath.Join(private, name), path); err != nil {
					t.Fatal(err)
				}
				return path
			}
			for _, name := range []string{emptyFile, secret, idleRecord} {
				place := strings.TrimSuffix(name, recordSuffix)
				path := plant(name, filepath.Join(locksFolder, place+recordSuffix))
				if line := stage.attempt(t, use.victim, dir, place); !strings.Contains(line, path) {
					t.Errorf("the error does not mention %s: %s", path, line)
				}
			}
			for _, name := range []string{emptyFile, secret} {
				stage.attempt(t, use.victim, dir, "name of "+plant(name, tokensFile))
			}
			unchanged(t, private, before)
		})
	}
}

// TestHardLinkRace: the same while the neighbor makes and removes that name as
// fast as possible, so that the file has one name at some moments.
func TestHardLinkRace(t *testing.T) {
	for what, use := range setups {
		for _, place := range []string{filepath.Join(locksFolder, "name.json"), tokensFile} {
			t.Run(what+", "+place, func(t *testing.T) { raceHardLink(t, use, place) })
		}
	}
}

func raceHardLink(t *testing.T, use setup, place string) {
	stage := newStage(t)
	private := makeVictim(t, filepath.Join(stage.dir, "private"), use.victim)
	dir := makeDir(t, filepath.Join(stage.dir, "folder"), use.owner, use.mode)
	if line := stage.attempt(t, use.attacker, dir, "another"); line != "granted" {
		t.Fatal(line)
	}
	before := snapshot(t, private)
	linker := stage.as(t, 0, "relink", filepath.Join(private, emptyFile), filepath.Join(dir, place))
	repeat := stage.as(t, use.victim, "repeat", dir, "name")
	if line := repeat.line(); line != "done" {
		t.Error(line)
	}
	linker.in.Close()
	if linker.number() == 0 {
		t.Error("the neighbor has made no name: this test shows nothing")
	}
	unchanged(t, private, before)
}

// roleRelink gives a file a second name and takes it away, until its input ends.
func roleRelink(args []string) error {
	ended := make(chan struct{})
	go func() {
		_ = awaitEOF()
		close(ended)
	}()
	for made := 0; ; {
		select {
		case <-ended:
			fmt.Println(made)
			return nil
		default:
		}
		if os.Link(args[0], args[1]) == nil {
			made++
		}
		_ = os.Remove(args[1])
	}
}

// roleRepeat acquires a name for half a second, each time through a new Store,
// whatever comes of it.
func roleRepeat(args []string) error {
	for began := time.Now(); time.Since(began) < 500*time.Millisecond; {
		s, err := New(args[0], nil)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err = s.Acquire(ctx, request(args[1], time.Nanosecond))
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		_ = s.Close()
	}
	fmt.Println("done")
	return nil
}

// TestNoRegularFiles: pipes, sockets, devices and folders in the place of files
// hold up nobody.
func TestNoRegularFiles(t *testing.T) {
	kinds := map[string]func(path string) error{
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o666) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o777) },
	}
	if os.Geteuid() == 0 {
		const nobodys = 240<<8 | 7 // To open it is an error of its own.
		kinds["a device"] = func(path string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o666, nobodys) }
	}
	for what, use := range setups {
		for kind, plant := range kinds {
			for _, place := range []string{filepath.Join(locksFolder, "name.json"), tokensFile, locksFolder, sessionsFolder} {
				if kind == "a folder" && (place == locksFolder || place == sessionsFolder) {
					continue
				}
				t.Run(fmt.Sprint(what, ", ", kind, " as ", place), func(t *testing.T) {
					stage := newStage(t)
					dir := makeDir(t, filepath.Join(stage.dir, "folder"), use.owner, use.mode)
					if parent := filepath.Dir(place); parent != "." {
						makeDir(t, filepath.Join(dir, parent), use.attacker, use.mode)
					}
					path := filepath.Join(dir, place)
					if err := errors.Join(plant(path), os.Chmod(path, 0o777)); err != nil {
						t.Fatal(err)
					}
					chown(t, path, use.attacker, group)
					before := snapshot(t, path)
					began := time.Now()
					line := stage.attempt(t, use.victim, dir, "name")
					unchanged(t, path, before)
					if !strings.Contains(line, path) {
						t.Errorf("the error does not name %s: %s", path, line)
					}
					if kind == "a device" && use.victim == 0 && !strings.Contains(line, "regular file") {
						t.Errorf("root has opened a device that a user has put there: %s", line)
					}
					if took := time.Since(began); took > 20*time.Second {
						t.Errorf("the answer took %v", took)
					}
				})
			}
		}
	}
}

// TestReaders: a user with the right to read the folder and not to write it cannot
// open a file in it, and so cannot lock one.
func TestReaders(t *testing.T) {
	stage := newStage(t)
	dir := makeDir(t, filepath.Join(stage.dir, "folder"), alice, 0o755)
	holder := stage.as(t, alice, "hold", dir, "name", "1h")
	holder.number()
	if os.Geteuid() == 0 {
		reader := stage.as(t, bob, "lock all", dir)
		if opened := reader.number(); opened != 0 {
			t.Errorf("a reader has opened and locked %d files", opened)
		}
	}
	if line := stage.attempt(t, alice, dir, "name"); line != "held" {
		t.Error(line)
	}
	for path, text := range snapshot(t, dir) {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm() != 0o600 {
			t.Errorf("a reader may open %s: %s", path, text)
		}
	}
}

// roleLockAll locks every file of a folder that it can open, prints how many
// there are, and keeps them.
func roleLockAll(args []string) error {
	locked := 0
	err := filepath.WalkDir(args[0], func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil
		}
		_ = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
		locked++
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Println(locked)
	return awaitEOF()
}

// TestStrangerGetsNowhere: without the right to write a user's own folder nothing can
// be put in it, not even beneath a folder that all may write.
func TestStrangerGetsNowhere(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not root: there is no stranger")
		return
	}
	stage := newStage(t)
	private := makeVictim(t, filepath.Join(stage.dir, "private"), alice)
	base := makeDir(t, filepath.Join(stage.dir, "base"), 0, 0o777|fs.ModeSticky)
	before := snapshot(t, private)
	attacker := stage.as(t, bob, "swap", base, private)
	for i := range 5 {
		dir := filepath.Join(base, fmt.Sprint("folder", i))
		if line := stage.attempt(t, alice, dir, "name"); line != "granted" {
			t.Error(line)
		}
	}
	attacker.in.Close()
	if swaps := attacker.number(); swaps > 0 {
		t.Errorf("a stranger has replaced %d things", swaps)
	}
	unchanged(t, private, before)
}

// TestMovedFolder: a store that is open follows its path, not a folder that was
// moved away or deleted, or two processes would have one lock.
func TestMovedFolder(t *testing.T) {
	for what, away := range map[string]func(dir string) error{
		"moved":   func(dir string) error { return os.Rename(dir, dir+".old") },
		"deleted": os.RemoveAll,
		"moved, its records": func(dir string) error {
			return os.Rename(filepath.Join(dir, locksFolder), filepath.Join(dir, "old"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "folder")
			first := openTest(t, dir)
			nextIn(t, first, "name")
			if err := away(dir); err != nil {
				t.Fatal(err)
			}
			granted(t, openTest(t, dir), "name", time.Hour)
			recheckFolder(first)
			refused(t, first, "name")
		})
	}
}

func init() {
	roles["attempt"], roles["swap"], roles["lock all"] = roleAttempt, roleSwap, roleLockAll
	roles["relink"], roles["repeat"] = roleRelink, roleRepeat
}

//go:build unix

// Package scripts has the test of the release.
package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const own = "github.com/holdfast-go/holdfast"

// A place is a temporary folder with a released clone of what is here, in "clone", and the home and
// the module of a user who has nothing yet.
type place struct {
	t   *testing.T
	dir string
}

// run runs a script in a folder of the place. The go command takes our modules from the clone.
func (p place) run(folder, script string) string {
	p.t.Helper()
	cmd := exec.Command("sh", "-euc", `
		. "$PLACE/clone/scripts/ownmodules"
		own_modules "$PLACE/clone" "$PLACE/cache"
		GOCACHE=$(go env GOCACHE) HOME="$PLACE/home" GOPATH="$PLACE/home/go" PATH="$PLACE/home/go/bin:$PATH"
		GOFLAGS="$GOFLAGS -trimpath" # so that the build cache serves, wherever the modules are
		export GOCACHE HOME GOPATH PATH
		unset HOLDFAST_STORE
		`+script)
	cmd.Dir = filepath.Join(p.dir, folder)
	cmd.Env = append(os.Environ(), "PLACE="+p.dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Errorf("in %s: %s: %v\n%s", folder, script, err, out)
	}
	return string(out)
}

func (p place) write(file, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, file), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// TestRelease makes a release of what is here, installs it as README and docs say, and uses it. It
// shows that the go.mod files are tidy, and that the libraries of the other modules go with a later
// version of the root: they import none of its internal packages.
func TestRelease(t *testing.T) {
	p := place{t, t.TempDir()}
	copied, err := exec.Command("sh", "-euc", `cd .. && . scripts/ownmodules && copy_here "$1" && "$1/scripts/release" v0.99.0`, "sh", filepath.Join(p.dir, "clone")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, copied)
	}
	for _, folder := range []string{"home", "program"} {
		if err := os.Mkdir(filepath.Join(p.dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(p.run("clone", "git show --format= --unified=0 --no-prefix")) {
		if (line[0] == '+' || line[0] == '-') && !strings.HasPrefix(line, "+++ ") && !strings.HasPrefix(line, "--- ") && !strings.Contains(line, own) {
			t.Errorf("a go.mod is not tidy (make tidy): %s", line)
		}
	}
	for _, module := range []string{"etcdstore", "s3store", "metrics/holdfastprom", "metrics/holdfastotel"} {
		p.run("clone/"+module, "go mod download "+own) // checks that its go.sum has the checksum of the root
	}

	p.run("program", "go mod init example.com/program")
	commands := documentedCommands(t)
	for _, command := range commands {
		p.run("program", command)
	}
	documented := strings.Join(commands, "\n") + "\n"
	for _, command := range []string{
		"go get " + own, "go get " + own + "/etcdstore", "go get " + own + "/s3store", "go get " + own + "/metrics/holdfastprom", "go get " + own + "/metrics/holdfastotel",
		"go install " + own + "/cmd/holdfast", "go install " + own + "/etcdstore/cmd/holdfast-etcd", "go install " + own + "/s3store/cmd/holdfast-s3",
	} {
		if !strings.Contains(documented, command+"@latest\n") {
			t.Errorf("%s@latest is in no document", command)
		}
	}
	for program, version := range map[string]string{"holdfast": "holdfast v0.99.0 ", "holdfast-etcd": "holdfast v0.99.0 ", "holdfast-s3": "holdfast v0.99.0 "} {
		if out := p.run("program", program+" version"); !strings.HasPrefix(out, version) {
			t.Errorf("%s version: %s", program, out)
		}
	}
	if out := p.run("program", "holdfast run x -- echo done"); out != "done\n" {
		t.Errorf("holdfast run: %s", out)
	}
	const url = "--store etcd://127.0.0.1:1"
	if out := p.run("program", "holdfast ls "+url+" || test $? = 69"); !strings.Contains(out, "127.0.0.1:1") {
		t.Errorf("holdfast does not use holdfast-etcd: %s", out)
	}
	missing := p.run("program", "rm ../home/go/bin/holdfast-etcd; holdfast ls "+url+" || test $? = 64")
	if _, try, _ := strings.Cut(missing, "; try: "); !strings.Contains(documented, "\n"+try) {
		t.Errorf("without holdfast-etcd: %s", missing)
	}

	const libraries = own + "/etcdstore " + own + "/s3store " + own + "/metrics/holdfastprom " + own + "/metrics/holdfastotel"
	p.write("program/main.go", "package main\n\nimport (\n\t_ \""+own+"/redisstore\"\n\t_ \""+own+"/pgstore\"\n\t_ \""+
		strings.ReplaceAll(libraries, " ", "\"\n\t_ \"")+"\"\n)\n\nfunc main() {}\n")
	p.run("program", "go mod tidy && go build .")

	p.renameInternal("clone")
	p.run("clone", "git add -A && git -c user.name=nobody -c user.email=nobody@localhost commit -qm Later && git tag v0.99.1")
	p.run("program", "go get "+own+"@v0.99.1")
	if out := p.run("program", "go list -m "+own+" "+own+"/etcdstore"); out != own+" v0.99.1\n"+own+"/etcdstore v0.99.0\n" {
		t.Errorf("the versions are:\n%s", out)
	}
	p.run("program", "go build "+strings.TrimPrefix(libraries, own+"/etcdstore "+own+"/s3store "))
}

// documentedCommands returns the commands of README, docs and package comments that install
// something of ours, each once.
func documentedCommands(t *testing.T) []string {
	t.Helper()
	pages, err := exec.Command("git", "-C", "..", "grep", "-hE", "go (get|install|run) "+own, "--", "*.md", "*doc.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, command := range regexp.MustCompile("go (get|install|run) "+own+"[^`\n]*").FindAllString(string(pages), -1) {
		command, _, _ = strings.Cut(command, " #")
		if command = strings.TrimSpace(command); !strings.Contains("\n"+strings.Join(commands, "\n")+"\n", "\n"+command+"\n") {
			commands = append(commands, command)
		}
	}
	return commands
}

// renameInternal moves the internal packages of the root, as a later version might.
func (p place) renameInternal(folder string) {
	p.t.Helper()
	files := p.run(folder, `git mv internal later && mkdir internal && git mv later internal/later
		git grep -l '"`+own+`/internal/' -- '*.go' ':!etcdstore' ':!s3store' ':!metrics/*/*' ':!tools'`)
	for file := range strings.Lines(files) {
		file = filepath.Join(folder, strings.TrimSpace(file))
		text, err := os.ReadFile(filepath.Join(p.dir, file))
		if err != nil {
			p.t.Fatal(err)
		}
		p.write(file, strings.ReplaceAll(string(text), `"`+own+`/internal/`, `"`+own+`/internal/later/`))
	}
}

// Command codestats counts what makes code in Go, Lua and SQL hard to take over: lines, files,
// private types, short private names, and words that do not belong into comments. It prints a line
// for each package below the given folders, of all modules, and one for all of them. Packages that
// only tests import are not among them: they share a line of their own. Two more lines have the
// words in the comments of all tests and in all pages of documentation.
//
//	go run ./internal/codestats .
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// shortName is the greatest length of a private function's name that counts as short.
const shortName = 6

var (
	persons      = regexp.MustCompile(`(?i)\b(who|whoever|whom|whose|he|him|his|himself)\b`)
	conversation = regexp.MustCompile(`(?i)\b(tell|tells|told|telling|say|says|said|saying|ask|asks|asked|asking)\b`)
)

// counts are the figures of one package, or of several.
type counts struct {
	files, lines, testLines       int
	types, privateTypes           int
	functions, private, short     int
	longest                       int // lines of the longest function
	comments, testComments, pages prose
}

// prose is text for people: comments, or pages of documentation.
type prose struct {
	lines, persons, conversation int // lines, and words in them
}

func (p *prose) add(q prose) {
	p.lines += q.lines
	p.persons += q.persons
	p.conversation += q.conversation
}

func (p *prose) addText(text string, lines int) {
	p.add(prose{lines, len(persons.FindAllString(text, -1)), len(conversation.FindAllString(text, -1))})
}

func (p *prose) print(name string) {
	fmt.Printf("%s: %d lines; who, he: %.0f; tell, say, ask: %.0f\n",
		name, p.lines, thousand(p.persons, p.lines), thousand(p.conversation, p.lines))
}

func (c *counts) add(d counts) {
	c.files += d.files
	c.lines += d.lines
	c.testLines += d.testLines
	c.types += d.types
	c.privateTypes += d.privateTypes
	c.functions += d.functions
	c.private += d.private
	c.short += d.short
	c.longest = max(c.longest, d.longest)
	c.comments.add(d.comments)
	c.testComments.add(d.testComments)
	c.pages.add(d.pages)
}

func main() {
	roots := os.Args[1:]
	if len(roots) == 0 {
		roots = []string{"."}
	}
	files := map[string]bool{}
	for _, root := range roots {
		exitIf(walk(root, files))
	}
	var modules []string
	packages := map[string]*counts{}
	for path := range files {
		if filepath.Base(path) == "go.mod" {
			modules = append(modules, filepath.Dir(path))
			continue
		}
		folder := filepath.Dir(path)
		if strings.HasSuffix(path, ".md") {
			folder = pagesFolder
		}
		if packages[folder] == nil {
			packages[folder] = &counts{}
		}
		counted, err := count(path)
		exitIf(err)
		packages[folder].add(counted)
	}
	support, err := testSupport(modules)
	exitIf(err)
	exitIf(write(packages, support))
}

func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "codestats:", err)
		os.Exit(1)
	}
}

// walk adds the files below a folder that count, and the go.mod of each module.
func walk(root string, files map[string]bool) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir():
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return fs.SkipDir
			}
		case name == "go.mod" || slices.Contains([]string{".go", ".lua", ".sql", ".md"}, filepath.Ext(name)):
			files[path] = true
		}
		return nil
	})
}

// testSupport returns the folders of packages that only tests import. Programs, packages that other
// modules can import, and what these depend on are not among them.
func testSupport(modules []string) (folders map[string]bool, err error) {
	internal, used := map[string]string{}, map[string]bool{} // folders by import path; import paths
	working, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for _, module := range modules {
		list := exec.Command("go", "list", "-C", module, "-f", `{{.Name}} {{.Dir}} {{.ImportPath}} {{join .Deps " "}}`, "./...")
		list.Stderr = os.Stderr
		output, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("list the packages of %s: %w", module, err)
		}
		for line := range strings.Lines(string(output)) {
			fields := strings.Fields(line)
			name, folder, path, deps := fields[0], fields[1], fields[2], fields[3:]
			if name != "main" && strings.Contains(path, "/internal/") {
				internal[path] = folder
				continue
			}
			for _, dep := range deps {
				used[dep] = true
			}
		}
	}
	folders = map[string]bool{}
	for path, folder := range internal {
		relative, err := filepath.Rel(working, folder)
		if err != nil {
			return nil, err
		}
		folders[relative] = !used[path]
	}
	return folders, nil
}

// pagesFolder is the key of the pages of documentation, which have no line of their own.
const pagesFolder = ""

// count counts one file. Of a test only the lines and the comments count.
func count(path string) (counts, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return counts{}, err
	}
	lines := strings.Count(string(text), "\n")
	c := counts{files: 1, lines: lines}
	comments := &c.comments
	switch {
	case strings.HasSuffix(path, ".md"):
		c = counts{}
		c.pages.addText(string(text), lines)
		return c, nil
	case !strings.HasSuffix(path, ".go"): // Lua and SQL
		for line := range strings.Lines(string(text)) {
			if _, comment, found := strings.Cut(line, "--"); found {
				comments.addText(comment, 1)
			}
		}
		return c, nil
	case strings.HasSuffix(path, "_test.go"):
		c = counts{testLines: lines}
		comments = &c.testComments
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments)
	if err != nil {
		return c, err
	}
	for _, group := range file.Comments {
		comments.addText(group.Text(), set.Position(group.End()).Line-set.Position(group.Pos()).Line+1)
	}
	if c.files == 0 {
		return c, nil
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.TypeSpec:
			c.types++
			if !node.Name.IsExported() {
				c.privateTypes++
			}
		case *ast.FuncDecl:
			c.functions++
			c.longest = max(c.longest, set.Position(node.End()).Line-set.Position(node.Pos()).Line+1)
			if name := node.Name.Name; !node.Name.IsExported() && name != "main" && name != "init" {
				c.private++
				if utf8.RuneCountInString(name) <= shortName {
					c.short++
				}
			}
		}
		return true
	})
	return c, nil
}

func thousand(n, of int) float64 { return 1000 * float64(n) / float64(max(of, 1)) }

// write writes the figures. support has the folders of packages that are not product code.
func write(packages map[string]*counts, support map[string]bool) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(c *counts, name string) {
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%.1f\t%d\t%.0f%%\t%d\t%d\t%.0f\t%.0f\t  %s\t\n",
			c.files, c.lines, c.testLines, c.privateTypes, thousand(c.privateTypes, c.lines),
			c.private, thousand(c.short, c.private)/10, c.longest,
			c.comments.lines, thousand(c.comments.persons, c.comments.lines),
			thousand(c.comments.conversation, c.comments.lines), name)
	}
	fmt.Fprintln(table, "files\tlines\ttest lines\tprivate types\tper 1000 lines\tprivate functions\t"+
		"short\tlongest\tcomment lines\twho, he\ttell, say, ask\t  package\t")
	var all, supporting counts
	for _, name := range slices.SortedFunc(maps.Keys(packages), cmp.Compare[string]) {
		if support[name] {
			supporting.add(*packages[name])
			continue
		}
		if name != pagesFolder {
			row(packages[name], name)
		}
		all.add(*packages[name])
	}
	row(&all, "all")
	row(&supporting, "support for tests")
	err := table.Flush()
	all.testComments.add(supporting.testComments)
	all.testComments.print("comments of tests")
	all.pages.print("pages")
	return err
}

// Command codestats counts what makes code hard to take over: lines, files, private
// types, short private names, and words that do not belong into comments. It prints a
// line for each package below the given folders, and one for all of them. Two more lines
// have the words in the comments of all tests and in all pages of documentation.
//
//	go run ./internal/codestats . ./bench
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
	packages := map[string]*counts{}
	for _, root := range roots {
		if err := walk(root, packages); err != nil {
			fmt.Fprintln(os.Stderr, "codestats:", err)
			os.Exit(1)
		}
	}
	if err := write(packages); err != nil {
		fmt.Fprintln(os.Stderr, "codestats:", err)
		os.Exit(1)
	}
}

// walk counts the files below a folder. A folder that is a module of its own counts
// only if it is the given one.
func walk(root string, packages map[string]*counts) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (err == nil || strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		folder := filepath.Dir(path)
		if strings.HasSuffix(name, ".md") {
			folder = pagesFolder
		} else if !strings.HasSuffix(name, ".go") {
			return nil
		}
		if packages[folder] == nil {
			packages[folder] = &counts{}
		}
		counted, err := count(path)
		packages[folder].add(counted)
		return err
	})
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

func write(packages map[string]*counts) error {
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
	var all counts
	for _, name := range slices.SortedFunc(maps.Keys(packages), cmp.Compare[string]) {
		if name != pagesFolder {
			row(packages[name], name)
		}
		all.add(*packages[name])
	}
	row(&all, "all")
	err := table.Flush()
	all.testComments.print("comments of tests")
	all.pages.print("pages")
	return err
}

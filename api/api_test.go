// Package api holds the exported API of the module as text, so that every change of it shows as a
// diff:
//
//	go test ./api -update
package api

import (
	"bytes"
	"flag"
	"go/ast"
	"go/build"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the listing anew")

const listing = "holdfast.txt"

func TestExportedAPI(t *testing.T) {
	got := list(t, "..")
	if *update {
		if err := os.WriteFile(listing, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(listing)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	before, after := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for _, line := range before {
		if !slices.Contains(after, line) {
			t.Errorf("- %s", line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			t.Errorf("+ %s", line)
		}
	}
	t.Errorf("the exported API has changed; if that is meant, run: go test ./api -update")
}

// list prints the exported declarations of every public package on Linux.
func list(t *testing.T, root string) string {
	t.Helper()
	var out bytes.Buffer
	context := build.Default
	context.GOOS = "linux"
	err := filepath.WalkDir(root, func(dir string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		switch base := entry.Name(); {
		case base == "internal", base == "cmd", base == "examples", base == "tools", base == "testdata", base != ".." && strings.HasPrefix(base, "."):
			return filepath.SkipDir
		}
		pkg, err := context.ImportDir(dir, 0)
		if _, none := err.(*build.NoGoError); none {
			return nil
		}
		if err != nil || pkg.Name == "main" {
			return err
		}
		path, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		out.WriteString("\npackage " + pkg.Name + " // " + filepath.ToSlash(path) + "\n")
		for _, line := range declarations(t, dir, pkg.GoFiles) {
			out.WriteString(line + "\n")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimLeft(out.String(), "\n")
}

// declarations returns the exported declarations of a package, sorted, without comments and
// function bodies.
func declarations(t *testing.T, dir string, files []string) []string {
	t.Helper()
	var lines []string
	fset := token.NewFileSet()
	for _, name := range files {
		file, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				d.Body = nil
				if d.Recv == nil || exportedReceiver(d) {
					lines = append(lines, text(t, fset, d))
				}
			case *ast.GenDecl:
				lines = append(lines, specs(t, fset, d)...)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func exportedReceiver(d *ast.FuncDecl) bool {
	receiver := d.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	name, ok := receiver.(*ast.Ident)
	return ok && name.IsExported()
}

func specs(t *testing.T, fset *token.FileSet, d *ast.GenDecl) []string {
	if d.Tok == token.IMPORT {
		return nil
	}
	var lines []string
	for _, spec := range d.Specs {
		lines = append(lines, d.Tok.String()+" "+text(t, fset, spec))
	}
	return lines
}

// text prints a declaration on one line.
func text(t *testing.T, fset *token.FileSet, node any) string {
	var out bytes.Buffer
	if err := (&printer.Config{Mode: printer.RawFormat}).Fprint(&out, fset, node); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
	joined := strings.Join(lines, "; ")
	return strings.NewReplacer("{; ", "{ ", "; }", " }", "(; ", "(", ",; ", ", ").Replace(joined)
}

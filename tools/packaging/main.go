// Packaging makes what "scripts/packages" cannot make with a program that exists:
//
//	packaging man FOLDER                                  the manual pages of the command
//	packaging image FOLDER VERSION ARCH=FILE,FILE... ...  a container image, as an OCI layout
//
// The image has no base. Its programs are static; all else that they need is the certificates of
// the public authorities, which the image takes from this machine.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/spf13/cobra/doc"

	"github.com/holdfast-go/holdfast/internal/command"
)

func main() {
	err := errors.New("usage: packaging man FOLDER, or packaging image FOLDER VERSION ARCH=FILE,FILE")
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "man":
		err = writeManual(args[1])
	case len(args) >= 4 && args[0] == "image":
		err = writeImage(args[1], args[2], args[3:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sourceTime is the time of what is built, so that the same source makes the same bytes.
func sourceTime() time.Time {
	seconds, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	return time.Unix(seconds, 0).UTC()
}

// writeManual writes a page for the program and one for each of its subcommands.
func writeManual(folder string) error {
	root := command.Root()
	for _, cmd := range append(root.Commands(), root) {
		cmd.Long = asMarkdown(cmd.Long)
		cmd.DisableAutoGenTag = true
	}
	date := sourceTime()
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Holdfast", Manual: "Holdfast", Date: &date}, folder)
}

// asMarkdown returns a help text as Markdown that keeps its tables: lines that begin with a space.
func asMarkdown(text string) string {
	var md strings.Builder
	table := false
	for line := range strings.Lines(text) {
		if begins := strings.HasPrefix(line, " "); begins != table {
			table = begins
			md.WriteByte('\n')
		}
		if table {
			md.WriteString("    ")
		}
		md.WriteString(line)
	}
	return md.String()
}

// writeImage writes an image for each architecture, with a layer for each file, and their index.
func writeImage(folder, version string, architectures []string) error {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, a := range architectures {
		architecture, files, _ := strings.Cut(a, "=")
		image := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
		image, err := mutate.ConfigFile(image, &v1.ConfigFile{
			OS: "linux", Architecture: architecture, Created: v1.Time{Time: sourceTime()},
			Config: v1.Config{
				User:       "65534:65534",
				Entrypoint: []string{"/usr/bin/holdfast"},
				Env:        []string{"PATH=/usr/bin"},
				Labels:     map[string]string{"org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "MIT"},
			},
		})
		if err != nil {
			return err
		}
		for _, file := range append([]string{"/etc/ssl/certs/ca-certificates.crt"}, strings.Split(files, ",")...) {
			layer, err := layerOf(file)
			if err != nil {
				return err
			}
			if image, err = mutate.Append(image, mutate.Addendum{
				Layer: layer, MediaType: types.OCILayer,
				History: v1.History{Created: v1.Time{Time: sourceTime()}, CreatedBy: filepath.Base(file)},
			}); err != nil {
				return err
			}
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	_, err := layout.Write(folder, index)
	return err
}

// layerOf returns a layer with a file: at its own place if that is below /etc, or in /usr/bin.
func layerOf(file string) (v1.Layer, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	name, mode := strings.TrimPrefix(file, "/"), int64(0o644)
	if !strings.HasPrefix(name, "etc/") {
		name, mode = "usr/bin/"+filepath.Base(file), 0o755
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for dir, rest, ok := "", name, true; ok; {
		var part string
		if part, rest, ok = strings.Cut(rest, "/"); ok {
			dir += part + "/"
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: sourceTime()}); err != nil {
				return nil, err
			}
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: sourceTime()}); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
}

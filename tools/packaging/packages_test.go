//go:build linux

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	composetypes "github.com/compose-spec/compose-go/v2/types"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-go/holdfast/internal/servers"
)

// shell runs a script and returns what it printed.
func shell(t *testing.T, script string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command("sh", append([]string{"-euc", script, "sh"}, args...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", script, err, out, stderr.Bytes())
	}
	return string(out)
}

// TestPackages makes the packages for this machine, in a clone that its owner alone can read, and
// uses what is in them.
func TestPackages(t *testing.T) {
	t.Setenv("TARGETS", "linux/"+runtime.GOARCH)
	root, here := t.TempDir(), filepath.Join(t.TempDir(), "clone")
	shell(t, `cd ../.. && . scripts/ownmodules && copy_here "$1" && cd "$1" && chmod -R go= . && umask 077 && git tag v0.99.0 && git tag etcdstore/v0.99.0 && git tag s3store/v0.99.0 && scripts/packages`, here)
	dist := filepath.Join(here, "dist")

	t.Run("checksums", func(t *testing.T) {
		shell(t, `cd "$1" && sha256sum --quiet -c SHA256SUMS`, dist)
	})
	t.Run("rpm", func(t *testing.T) {
		root := t.TempDir()
		shell(t, `unshare --map-root-user rpm -i --root "$2" --nodeps --ignorearch "$1"/*.rpm`, dist, root)
		checkFiles(t, root, "usr/share/zsh/site-functions/_holdfast")
		if listed := shell(t, `rpm -qp --scripts "$1"/*.rpm`, dist); listed != "" {
			t.Errorf("it runs scripts: %s", listed)
		}
	})
	t.Run("deb", func(t *testing.T) {
		shell(t, `for deb in "$1"/*_`+runtime.GOARCH+`.deb; do dpkg-deb -x "$deb" "$2"; done`, dist, root)
		checkFiles(t, root, "usr/share/zsh/vendor-completions/_holdfast")
		out := shell(t, `cd "$1" && HOME=$1 usr/bin/holdfast run deb -- sh -c 'echo "$HOLDFAST_NAME is held"'`, root)
		if out != "deb is held\n" {
			t.Errorf("holdfast of the package printed %q", out)
		}
		for _, program := range []string{"holdfast", "holdfast-etcd", "holdfast-s3"} {
			if out := shell(t, `"$1/usr/bin/$2" version`, root, program); !strings.Contains(out, " v0.99.0 ") || strings.Contains(out, "dirty") {
				t.Errorf("%s is of version %q", program, out)
			}
		}
		licenses, err := os.ReadFile(filepath.Join(root, "usr/share/doc/holdfast-etcd/copyright"))
		if err != nil || !strings.Contains(string(licenses), "==== google.golang.org/grpc v") {
			t.Errorf("the licenses of holdfast-etcd do not name grpc (%v)", err)
		}
	})
	t.Run("manual", func(t *testing.T) {
		page := shell(t, `gzip -dc "$1/usr/share/man/man1/holdfast-run.1.gz"`, root)
		for _, want := range []string{`\fB--ttl\fP=30s`, "   75  the lock is held by another"} {
			if !strings.Contains(page, want) {
				t.Errorf("holdfast-run(1) has no %q:\n%s", want, page)
			}
		}
	})
	t.Run("image", func(t *testing.T) { testImage(t, filepath.Join(dist, "image")) })
	t.Run("formula", func(t *testing.T) {
		formula, err := os.ReadFile(filepath.Join(dist, "holdfast.rb"))
		sums, err2 := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		sum := regexp.MustCompile(`(\w+)  holdfast_0\.99\.0_linux_` + runtime.GOARCH + `\.tar\.gz`).FindSubmatch(sums)
		if sum == nil || !bytes.Contains(formula, sum[1]) {
			t.Errorf("the formula has not the checksum of the archive: %s", formula)
		}
	})
}

// checkFiles fails the test unless what is below root can be read by everybody, and both programs
// executed.
func checkFiles(t *testing.T, root, zsh string) {
	for _, file := range []string{
		"usr/bin/holdfast", "usr/bin/holdfast-etcd", "usr/share/man/man1/holdfast-run.1.gz", zsh,
		"usr/share/bash-completion/completions/holdfast", "usr/share/fish/vendor_completions.d/holdfast.fish",
		"usr/share/doc/holdfast/copyright", "usr/share/doc/holdfast-etcd/copyright", "usr/share/doc/holdfast/examples/nightly.timer",
	} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
	modes := shell(t, `cd "$1/usr" && find . -type d ! -perm 755 -o -path './bin/*' ! -perm 755 -o -path './share/*' -type f ! -perm 644`, root)
	if modes != "" {
		t.Errorf("of other modes than those of a package:\n%s", modes)
	}
}

// testImage unpacks the image and runs it as nobody, on a root that cannot be written.
func testImage(t *testing.T, folder string) {
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, descriptor := range manifest.Manifests {
		if descriptor.Platform.Architecture != runtime.GOARCH {
			continue
		}
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Config.User != "65534:65534" || len(config.RootFS.DiffIDs) != 4 {
			t.Errorf("the image runs as %q and has %d layers", config.Config.User, len(config.RootFS.DiffIDs))
		}
		runImage(t, image, config)
		return
	}
	t.Errorf("there is no image for %s", runtime.GOARCH)
}

func runImage(t *testing.T, image v1.Image, config *v1.ConfigFile) {
	root := t.TempDir()
	files := mutate.Extract(image)
	defer files.Close()
	unpack := exec.Command("tar", "-xf", "-", "-C", root)
	unpack.Stdin = files
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	redis := servers.StartRedis(t)
	userNamespace, nobody := "--map-root-user", "--userspec=0:0" // one user is all that there is
	if os.Getuid() == 0 {
		userNamespace, nobody = "--mount", "--userspec="+config.Config.User
	}
	out := shell(t, `
		mkdir "$1/proc"
		exec unshare "$2" --mount --pid --fork sh -euc '
			mount --bind "$1" "$1"
			mount -t proc proc "$1/proc"
			mount -o remount,bind,ro "$1"
			exec chroot "$2" "$1" "$3" run job --store "redis://$4" -- "$3" version' sh "$1" "$3" "$4" "$5"`,
		root, userNamespace, nobody, config.Config.Entrypoint[0], redis.Addr)
	if !strings.HasPrefix(out, "holdfast ") {
		t.Errorf("holdfast of the image printed %q", out)
	}
}

// TestExamplesOfDeployment checks the files against the types of the systems that read them.
func TestExamplesOfDeployment(t *testing.T) {
	const folder = "../../examples/deploy/"
	text, err := os.ReadFile(folder + "kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &deployment); err != nil {
		t.Error(err)
	}
	text, err = os.ReadFile(folder + "compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loader.LoadWithContext(context.Background(), composetypes.ConfigDetails{
		WorkingDir:  folder,
		ConfigFiles: []composetypes.ConfigFile{{Filename: "compose.yaml", Content: text}},
	}, func(o *loader.Options) { o.SetProjectName("holdfast", true) }); err != nil {
		t.Error(err)
	}
}

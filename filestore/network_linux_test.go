package filestore

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// TestNetworkFileSystem calls the file system of this test one of the network. Nothing is made
// there.
func TestNetworkFileSystem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet", "there")
	var fs syscall.Statfs_t
	if err := syscall.Statfs(nearestExisting(dir), &fs); err != nil {
		t.Fatal(err)
	}
	networkFileSystems[uint32(fs.Type)] = "NFS"
	defer delete(networkFileSystems, uint32(fs.Type))
	_, err := New(dir, nil)
	wantError(t, err, driver.ErrUnsupported, dir, "NFS", "allow_network")
	if left := files(t, nearestExisting(dir)); len(left) > 0 {
		t.Errorf("what was refused has left %q", left)
	}
	for _, open := range []func() (*Store, error){
		func() (*Store, error) { return New(dir, &Options{AllowNetwork: true}) },
		func() (*Store, error) { return openAt(t, "file://"+dir+"?allow_network=true") },
	} {
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
}

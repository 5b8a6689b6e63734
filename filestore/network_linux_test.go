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

// Network and cluster file systems are known by the numbers that coreutils calls remote, and so are
// the folders that a virtual machine or Docker Desktop shares, where a file lock may be granted
// twice.
func TestNetworkFileSystemsAreKnown(t *testing.T) {
	for _, magic := range []uint32{
		0x6969, 0x65735546, 0xFF534D42, 0xFE534D42, 0x517B, 0x01021997, 0x5346414F, 0x6B414653, 0x61636673, 0xC36400, 0x73757245,
		0x564C, 0x01161970, 0x7461636F, 0x0BD00BD0, 0x47504653, 0x19830326, 0xAAD7AAEA, 0xBEEFDEAD, 0x20030528, 0xA501FCF5,
		0x013111A8, 0x786F4256, 0x7C7C6673, 0xBACBACBC, 0x6A656A63,
	} {
		if networkFileSystems[magic] == "" {
			t.Errorf("%#x is not known", magic)
		}
	}
}

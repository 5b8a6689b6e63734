//go:build !linux && !darwin

package filestore

// networkNameOf returns "": network file systems are not recognized here, so the caller of Open
// must know.
func networkNameOf(string) (string, error) { return "", nil }

// network is networkNameOf for an open folder.
func (d *dir) network() (string, error) { return "", nil }

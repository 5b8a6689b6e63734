package doctor

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-go/holdfast/filestore"
)

// examineFolder examines the folder of a store, or the nearest one above it that exists. The store
// itself has refused a network file system, and a folder that everybody may write. The probe shows
// that a locked file is locked for others.
func examineFolder(store *filestore.Store) []Finding {
	var all list
	dir := store.Dir()
	_, err := os.Stat(dir)
	all.check("file.folder", "the folder is there", err != nil, Note, fmt.Sprintf("the folder %s is not there yet: the first lock makes it", dir), "the folder that all users of the locks name", "")
	for err != nil && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
		_, err = os.Stat(dir)
	}
	if err != nil {
		return all
	}
	all.checkSpace(dir)
	return all
}

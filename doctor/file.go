package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/holdfast-go/holdfast/filestore"
)

// examineFolder examines the folder of a store, or the nearest one above it that exists. That the
// folder is not on a network file system, the store has checked. That files are locked for others,
// the probe shows.
func examineFolder(store *filestore.Store) []Finding {
	var all list
	dir := store.Dir()
	info, err := os.Stat(dir)
	all.check("file.folder", "the folder is there", err != nil, Note, fmt.Sprintf("the folder %s is not there yet: the first lock makes it", dir), "the folder that all users of the locks name", "")
	for err != nil && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
		info, err = os.Stat(dir)
	}
	if err != nil {
		return all
	}
	if runtime.GOOS != "windows" && dir == store.Dir() {
		all.check("file.rights", fmt.Sprintf("%s is %v", dir, info.Mode()), info.Mode()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0, Warning,
			fmt.Sprintf("%s is %v: every user of this host may delete the locks of others", dir, info.Mode()), "a folder of this user, or a group that may write", "chmod o-w "+dir)
	}
	all.checkSpace(dir)
	return all
}

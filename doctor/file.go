package doctor

import (
	"fmt"
	"os"

	"github.com/holdfast-go/holdfast/filestore"
)

// examineFolder examines the folder of a store. The store itself has refused a network file system,
// and a folder that everybody may write. The probe shows that there is room for a file, and that a
// locked file is locked for others.
func examineFolder(store *filestore.Store) []Finding {
	var all list
	_, err := os.Stat(store.Dir())
	all.check("file.folder", "the folder is there", err != nil, Note, fmt.Sprintf("the folder %s is not there yet: the first lock makes it", store.Dir()), "the folder that all users of the locks name", "")
	return all
}

package filestore

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

const (
	fileSuffix = ".json"

	// maxEscapedLen keeps file names below 143 bytes, the limit of eCryptfs. Other file systems
	// allow 255.
	maxEscapedLen = 130

	// readablePrefixLen is the length of the readable part of a longer name.
	readablePrefixLen = maxEscapedLen - len("~") - 2*sha256.Size
)

// A device is what Windows takes a file of this name for, whatever its suffix. Names in capitals
// are escaped in any case.
var device = regexp.MustCompile(`^(con|nul|aux|prn|com[0-9]|lpt[0-9])(\.|$)`)

// fileName returns the name of the file of a lock, in which every byte except a-z, 0-9, dot,
// underscore and hyphen is %xx. Different locks have different files, also on file systems that
// ignore case or normalize Unicode. No file is hidden, outside the folder, or a device.
func fileName(name string) string {
	var escaped []byte
	for i := range len(name) {
		c := name[i]
		plain := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if plain && (i > 0 || c != '.' && !device.MatchString(name)) {
			escaped = append(escaped, c)
		} else {
			escaped = fmt.Appendf(escaped, "%%%02x", c)
		}
	}
	if len(escaped) > maxEscapedLen {
		// An escaped name has no tilde, so a long name never collides with a short one.
		escaped = fmt.Appendf(escaped[:readablePrefixLen], "~%x", sha256.Sum256([]byte(name)))
	}
	return string(escaped) + fileSuffix
}

// mayMatchPrefix reports whether the lock of a file can have a name that begins with prefix. It is
// exact for names that are not shortened.
func mayMatchPrefix(file, prefix string) bool {
	name, err := url.PathUnescape(strings.TrimSuffix(file, fileSuffix))
	return err != nil || strings.Contains(name, "~") || strings.HasPrefix(name, prefix)
}

// isNameFile reports whether a file is that of a name.
func isNameFile(file string) bool {
	return strings.HasSuffix(file, fileSuffix) && !strings.HasPrefix(file, ".")
}

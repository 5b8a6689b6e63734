package filestore

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
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

// fileName returns the name of the record file of a lock. Different locks have different files,
// also on file systems that ignore case or normalize Unicode. No file is hidden, outside the
// folder, or a device.
func fileName(name string) string {
	escaped := escapeName(name)
	if len(escaped) <= maxEscapedLen {
		return escaped + fileSuffix
	}
	// An escaped name has no tilde, so a long name never collides with a short one.
	sum := sha256.Sum256([]byte(name))
	return escaped[:readablePrefixLen] + "~" + hex.EncodeToString(sum[:]) + fileSuffix
}

// escapeName writes every byte except a-z, 0-9, dot, underscore and hyphen as %xx.
func escapeName(name string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		plain := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if i == 0 && (c == '.' || isDevice(name)) {
			plain = false
		}
		if plain {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

// isDevice reports whether Windows takes a file of this name for a device, whatever its suffix.
// Names in capitals are escaped in any case.
func isDevice(name string) bool {
	base, _, _ := strings.Cut(name, ".")
	switch base {
	case "con", "nul", "aux", "prn":
		return true
	}
	if len(base) != 4 || base[:3] != "com" && base[:3] != "lpt" {
		return false
	}
	return base[3] >= '0' && base[3] <= '9'
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

package filestore

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	recordSuffix = ".json"

	// longestEscape keeps file names below 143 bytes, the limit of eCryptfs;
	// other file systems allow 255.
	longestEscape = 130

	// readablePart is how much of a longer name stays in sight.
	readablePart = longestEscape - len("~") - 2*sha256.Size
)

// fileName returns the name of the record file of a lock. Different locks have
// different files, on file systems too that do not tell upper from lower case or
// that normalise Unicode; no file is hidden, outside the folder, or a device.
func fileName(name string) string {
	escaped := escape(name)
	if len(escaped) <= longestEscape {
		return escaped + recordSuffix
	}
	// A tilde is never in an escaped name, so that no long name meets a short
	// one.
	sum := sha256.Sum256([]byte(name))
	return escaped[:readablePart] + "~" + hex.EncodeToString(sum[:]) + recordSuffix
}

// escape writes every byte but a-z, 0-9, dot, underscore and hyphen as %xx.
func escape(name string) string {
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

// isDevice reports whether Windows would take a file of this name, whatever its
// suffix, for a device. Names in capitals are escaped in any case.
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

// mayBegin reports whether the lock of a record file can have a name that
// begins with prefix. It is exact for names that are not shortened.
func mayBegin(file, prefix string) bool {
	escaped := strings.TrimSuffix(file, recordSuffix)
	if strings.Contains(escaped, "~") {
		return true
	}
	name, ok := unescape(escaped)
	return !ok || strings.HasPrefix(name, prefix)
}

func unescape(escaped string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(escaped); i++ {
		if escaped[i] != '%' {
			b.WriteByte(escaped[i])
			continue
		}
		if i+3 > len(escaped) {
			return "", false
		}
		c, err := hex.DecodeString(escaped[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b.Write(c)
		i += 2
	}
	return b.String(), true
}

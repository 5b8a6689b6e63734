package s3store

import (
	"fmt"
	"net/url"
	"strings"
)

// A key is a name in which all bytes but letters, digits, "-" and "_" are percent-encoded: so no
// proxy shortens it, and no server takes it for a path. A key of more than keyPart bytes has "~/"
// after each part of that length, since servers that keep objects as files have short names.
const keyPart = 200

// probe is the key by which a server is checked. No name has it.
const probe = "~probe"

// encode returns the key of a name, and of the beginning of a name the beginning of its key.
func encode(name string) string {
	var plain strings.Builder
	for _, b := range []byte(name) {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '-', b == '_':
			plain.WriteByte(b)
		default:
			fmt.Fprintf(&plain, "%%%02X", b)
		}
	}
	key, rest := "", plain.String()
	for len(rest) > keyPart {
		key, rest = key+rest[:keyPart]+"~/", rest[keyPart:]
	}
	return key + rest
}

// decode returns the name of a key, unless the key is not one of this package.
func decode(key string) (name string, ok bool) {
	name, err := url.PathUnescape(strings.ReplaceAll(key, "~/", ""))
	return name, err == nil && name != "" && encode(name) == key
}

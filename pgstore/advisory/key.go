package advisory

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Keys say how the key of a lock is made from its name. A key is a bigint or a pair of integers; a
// pair is never the lock of a bigint. Each database has keys of its own. Programs exclude each
// other if they make the same key. Names that share a key, even by accident, are one lock.
//
// By default a key is the first 8 bytes of SHA-256(Namespace, byte 0x1f, name), read as a
// big-endian bigint. Among a million names the odds that any two share a key are 1 to 37 million.
// In SQL:
//
//	('x' || encode(substr(sha256(convert_to(namespace || chr(31) || name, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint
//
// Test vectors:
//
//	Namespace ""         name "invoices/42"  -2819567864767847804
//	Namespace "billing"  name "invoices/42"   -930730480403387710
//	Namespace ""         name "größe"        -1839545750346627934
type Keys struct {
	Namespace string

	// Raw takes the name for the key: "42" is a bigint and "1,2" a pair of integers, in decimal,
	// without spaces, plus signs or leading zeros. Other names are invalid. So any key that another
	// program uses can be locked: docs/languages.md has the SQL that makes those of some programs.
	Raw bool
}

// of returns the key of a name, as one or two numbers with a comma between them.
func (k Keys) of(name string) (string, error) {
	if !k.Raw {
		sum := sha256.Sum256([]byte(k.Namespace + "\x1f" + name))
		return strconv.FormatInt(int64(binary.BigEndian.Uint64(sum[:8])), 10), nil
	}
	if k.Namespace != "" {
		return "", fmt.Errorf("%w: raw keys have no namespace", driver.ErrInvalid)
	}
	size, numbers := 64, strings.Split(name, ",")
	if len(numbers) == 2 {
		size = 32
	}
	for _, text := range numbers {
		n, err := strconv.ParseInt(text, 10, size)
		if err != nil || strconv.FormatInt(n, 10) != text || len(numbers) > 2 {
			return "", fmt.Errorf(`%w: the name is not a raw key such as "42" or "1,2"`, driver.ErrInvalid)
		}
	}
	return name, nil
}

package advisory

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// A Key is the key of an advisory lock of PostgreSQL: a bigint, or a pair of integers. The two
// kinds never collide. A key belongs to one database. [Key64] and [Key2x32] make keys.
type Key struct{ text string }

// Key64 is the key of pg_advisory_lock(bigint).
func Key64(n int64) Key { return Key{strconv.FormatInt(n, 10)} }

// Key2x32 is the key of pg_advisory_lock(int, int).
func Key2x32(a, b int32) Key { return Key{fmt.Sprintf("%d,%d", a, b)} }

// String gives the key in the form that [RawKeys] reads: "42" or "1,2".
func (k Key) String() string { return k.text }

// literals returns the arguments of an SQL function for a key as text: digits, at most a sign each.
func (k Key) literals() string { return "'" + strings.ReplaceAll(k.text, ",", "','") + "'" }

// A KeyScheme makes the key of a lock from its name. Programs exclude each other if they make the
// same key. Names that share a key, even by accident, are one lock.
type KeyScheme func(name string) (Key, error)

// SHA256Keys are the keys that this package uses by default: the first 8 bytes of
// SHA-256(namespace, byte 0x1f, name), read as a big-endian bigint. Among a million names the odds
// that any two share a key are 1 to 37 million. In SQL:
//
//	('x' || encode(substr(sha256(convert_to(namespace || chr(31) || name, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint
//
// Test vectors:
//
//	namespace ""         name "invoices/42"  -2819567864767847804
//	namespace "billing"  name "invoices/42"   -930730480403387710
//	namespace ""         name "größe"        -1839545750346627934
func SHA256Keys(namespace string) KeyScheme {
	return func(name string) (Key, error) {
		sum := sha256.Sum256([]byte(namespace + "\x1f" + name))
		return Key64(int64(binary.BigEndian.Uint64(sum[:8]))), nil
	}
}

// RawKeys reads the key from the name: "42" is a bigint and "1,2" a pair of integers, in decimal,
// without spaces, plus signs or leading zeros. Other names are invalid. With RawKeys any key that
// another program uses can be locked: docs/languages.md has the SQL that makes those of some
// programs.
func RawKeys(name string) (Key, error) {
	n, _ := strconv.ParseInt(name, 10, 64)
	var a, b int32
	_, _ = fmt.Sscanf(name, "%d,%d", &a, &b)
	for _, key := range []Key{Key64(n), Key2x32(a, b)} {
		if key.text == name {
			return key, nil
		}
	}
	return Key{}, fmt.Errorf(`%w: the name is not a raw key such as "42" or "1,2"`, driver.ErrInvalid)
}

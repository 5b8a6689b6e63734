package advisory

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// A Key is the key of an advisory lock of PostgreSQL: a bigint, or a pair of integers. The two
// kinds never collide. A key belongs to one database.
type Key struct {
	bits int64
	pair bool
}

// Key64 is the key of pg_advisory_lock(bigint).
func Key64(n int64) Key { return Key{bits: n} }

// Key2x32 is the key of pg_advisory_lock(int, int).
func Key2x32(a, b int32) Key { return Key{bits: int64(a)<<32 | int64(uint32(b)), pair: true} }

// String gives the key in the form that [RawKeys] reads: "42" or "1,2".
func (k Key) String() string {
	if k.pair {
		return fmt.Sprintf("%d,%d", int32(k.bits>>32), int32(k.bits))
	}
	return strconv.FormatInt(k.bits, 10)
}

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
// another program uses can be locked.
func RawKeys(name string) (Key, error) {
	key, err := readKey(name)
	if err != nil || key.String() != name {
		return Key{}, fmt.Errorf(`%w: the name is not a raw key such as "42" or "1,2"`, driver.ErrInvalid)
	}
	return key, nil
}

func readKey(text string) (Key, error) {
	first, second, pair := strings.Cut(text, ",")
	if !pair {
		n, err := strconv.ParseInt(text, 10, 64)
		return Key64(n), err
	}
	a, err := strconv.ParseInt(first, 10, 32)
	if err != nil {
		return Key{}, err
	}
	b, err := strconv.ParseInt(second, 10, 32)
	return Key2x32(int32(a), int32(b)), err
}

// HashtextKeys are those of pg_advisory_lock(hashtext(name)). They have 32 bits:
// among 10,000 names two are likely (1 in 100) to share a key. PostgreSQL does
// not document the function; the value is that of version 8.4 to 18 on
// little-endian machines, for a database in UTF-8.
func HashtextKeys(name string) (Key, error) {
	return Key64(int64(int32(hashBytes(name)))), nil
}

// HashtextextendedKeys are those of pg_advisory_lock(hashtextextended(name, 0)),
// with the same reservations as [HashtextKeys] and 64 bits.
func HashtextextendedKeys(name string) (Key, error) {
	return Key64(int64(hashBytes(name))), nil
}

// WithAdvisoryLockKeys are those of the Ruby gem with_advisory_lock: the pair
// (crc32(name) & 0x7fffffff, 0), as long as WITH_ADVISORY_LOCK_PREFIX in its
// environment is not a number. They have 31 bits.
func WithAdvisoryLockKeys(name string) (Key, error) {
	return Key2x32(int32(crc32.ChecksumIEEE([]byte(name))&0x7fffffff), 0), nil
}

// GoodJobKeys are those of the Ruby gem good_job, which locks
// ('x' || substr(md5(name), 1, 16))::bit(64)::bigint. The name is the table and
// the value with a hyphen between, as in "good_jobs-" and the id of the job.
func GoodJobKeys(name string) (Key, error) {
	sum := md5.Sum([]byte(name))
	return Key64(int64(binary.BigEndian.Uint64(sum[:8]))), nil
}

// RailsMigrationKey is the key under which Ruby on Rails (5.0 or later) migrates
// a database: crc32(database) * 2053462845. Its String is a name for [RawKeys].
func RailsMigrationKey(database string) Key {
	return Key64(2053462845 * int64(crc32.ChecksumIEEE([]byte(database))))
}

// GolangMigrateKey is the key under which golang-migrate (version 4, drivers
// postgres, pgx and pgx5) migrates: crc32(schema, NUL, table, NUL, database) *
// 1486364155 in 32 bits without sign. The schema is that of its table of
// migrations ("public"), the table "schema_migrations" unless set otherwise.
func GolangMigrateKey(database, schema, table string) Key {
	sum := crc32.ChecksumIEEE([]byte(schema + "\x00" + table + "\x00" + database))
	return Key64(int64(sum * 1486364155))
}

// keySchemes are the schemes as a URL names them.
var keySchemes = map[string]KeyScheme{
	"raw":                RawKeys,
	"hashtext":           HashtextKeys,
	"hashtextextended":   HashtextextendedKeys,
	"with_advisory_lock": WithAdvisoryLockKeys,
	"good_job":           GoodJobKeys,
}

// hashBytes is hashtextextended(text, 0) of PostgreSQL; its lower half is
// hashtext(text). It is lookup3 of Bob Jenkins with an initial value of
// PostgreSQL's own.
func hashBytes(text string) uint64 {
	h := lookup3{}
	h.a = 0x9e3779b9 + uint32(len(text)) + 3923095
	h.b, h.c = h.a, h.a
	rest := []byte(text)
	for ; len(rest) >= 12; rest = rest[12:] {
		h.addBlock(rest)
		h.mix()
	}
	// The lowest byte of c stands for the length.
	var last [13]byte
	copy(last[:], rest)
	copy(last[9:], last[8:11])
	last[8] = 0
	h.addBlock(last[:12])
	h.final()
	return uint64(h.b)<<32 | uint64(h.c)
}

type lookup3 struct{ a, b, c uint32 }

func (h *lookup3) addBlock(block []byte) {
	h.a += binary.LittleEndian.Uint32(block)
	h.b += binary.LittleEndian.Uint32(block[4:])
	h.c += binary.LittleEndian.Uint32(block[8:])
}

func (h *lookup3) mix() {
	a, b, c := h.a, h.b, h.c
	for _, turns := range [2][3]int{{4, 6, 8}, {16, 19, 4}} {
		a = a - c ^ bits.RotateLeft32(c, turns[0])
		c += b
		b = b - a ^ bits.RotateLeft32(a, turns[1])
		a += c
		c = c - b ^ bits.RotateLeft32(b, turns[2])
		b += a
	}
	h.a, h.b, h.c = a, b, c
}

func (h *lookup3) final() {
	a, b, c := h.a, h.b, h.c
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)
	h.a, h.b, h.c = a, b, c
}

package advisory

import (
	"encoding/binary"
	"math/bits"
)

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

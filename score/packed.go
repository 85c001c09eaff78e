package score

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"strings"
)

// A packed is a group in a form that takes about as much memory as its JSON: a batch can have
// many.
type packed struct {
	file *File // of the group

	// The length of the key and the key, the prompt, the number of rewards, the lengths of
	// their exact sums and these as appendExact writes them, and the spans. Numbers are those
	// of binary.AppendUvarint, and spans little-endian float32 values.
	data string
}

func (g *group) pack() packed {
	text := appendText(nil, g.key)
	text = append(text, g.prompt[:]...)
	rewards := g.rewards.json()
	text = binary.AppendUvarint(text, uint64(rewards.N))
	text = appendText(appendText(text, rewards.Sum), rewards.Squares)
	for _, m := range g.spans {
		text = binary.LittleEndian.AppendUint32(text, math.Float32bits(m))
	}
	return packed{g.file, string(text)}
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// cutNumber and cutText return what pack has appended, and what follows it.
func cutNumber(data string) (n uint64, rest string) {
	for i := 0; ; i++ {
		b := data[i]
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return n, data[i+1:]
		}
	}
}

func cutText(data string) (text, rest string) {
	n, rest := cutNumber(data)
	return rest[:n], rest[n:]
}

func (p packed) key() string {
	key, _ := cutText(p.data)
	return key
}

func (p packed) unpack() *group {
	g := &group{file: p.file}
	var rest string
	g.key, rest = cutText(p.data)
	copy(g.prompt[:], rest)
	n, rest := cutNumber(rest[len(g.prompt):])
	g.rewards.n = int64(n)
	for _, s := range [...]struct {
		number *big.Int
		unit   int
	}{{&g.rewards.sum, sumUnit}, {&g.rewards.squares, squareUnit}} {
		var text string
		text, rest = cutText(rest)
		if err := parseExact(s.number, s.unit, text); err != nil {
			panic(err) // pack has written it
		}
	}
	g.spans = make([]float32, len(rest)/4)
	for i := range g.spans {
		g.spans[i] = math.Float32frombits(binary.LittleEndian.Uint32([]byte(rest[4*i:])))
	}
	return g
}

// group returns the group of that key, or nil if p has none.
func (p *Partial) group(key string) *group {
	i, ok := slices.BinarySearchFunc(p.groups, key, func(g packed, key string) int { return strings.Compare(g.key(), key) })
	if !ok {
		return nil
	}
	return p.groups[i].unpack()
}

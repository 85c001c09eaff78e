package kernels

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

var update = flag.Bool("update", false, "write testdata/bits.txt from the portable kernels")

const bitsFile = "testdata/bits.txt"

// TestBits compares every implementation of this machine with the bits that plain Go
// had on amd64, for every kernel, dtype and family. So it finds a difference between
// any two implementations on any two machines.
func TestBits(t *testing.T) {
	if *update {
		lines := append([]string{"# kernel, type, family, size, hash of the main input; outputs as float64, or their number and a hash"}, bitLines(t, Implementations()[0])...)
		must.Do(os.WriteFile(bitsFile, []byte(strings.Join(lines, "\n")+"\n"), 0o666))
	}
	golden := must.Get(os.ReadFile(bitsFile))
	want := strings.Split(strings.TrimSpace(string(golden)), "\n")[1:]
	for _, impl := range withGPU(t) {
		t.Run(impl.Name, func(t *testing.T) {
			want := slices.DeleteFunc(slices.Clone(want), func(line string) bool {
				name, _, _ := strings.Cut(line, " ")
				k, err := Find(name)
				return err == nil && len(k.On([]Implementation{impl})) == 0
			})
			got := bitLines(t, impl)
			if len(got) != len(want) {
				t.Fatalf("%d cases, want the %d of %s", len(got), len(want), bitsFile)
			}
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("got  %s\nwant %s", got[i], want[i])
				}
			}
		})
	}
}

// bitLines describes the results of every case that the implementation has, a line each.
func bitLines(t *testing.T, impl Implementation) []string {
	var lines []string
	run := impl.New(1)
	for _, k := range All() {
		if len(k.On([]Implementation{impl})) == 0 {
			continue
		}
		for _, dtype := range k.DTypes {
			for _, family := range Families {
				for _, size := range []int{1, 21, 300, 1025, 2500} {
					s := spec(k, size)
					s.DType, s.Family, s.Seed = dtype, family, uint64(size)
					c, err := k.New(s)
					if err == nil {
						err = c.Run(run)
					}
					if err != nil {
						t.Fatal(err)
					}
					lines = append(lines, fmt.Sprintf("%s %s %v %d %016x: %s", k.Name, dtype, family, size,
						hash(littleEndian(c.Input, dtype.Size())), patterns(c.Bits(nil))))
				}
			}
		}
	}
	return lines
}

// patterns returns the bits themselves if they are few, else their number and a
// hash.
func patterns(bits []uint64) string {
	var b bytes.Buffer
	if len(bits) <= 8 {
		for i, v := range bits {
			if i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%016x", v)
		}
		return b.String()
	}
	for _, v := range bits {
		fmt.Fprintf(&b, "%016x", v)
	}
	return fmt.Sprintf("%d %016x", len(bits), hash(b.Bytes()))
}

// littleEndian returns a copy of an array of this machine's memory with the
// bytes of its elements in the order of amd64 and arm64.
func littleEndian(memory []byte, size int) []byte {
	b := bytes.Clone(memory)
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return b
	}
	for e := range slices.Chunk(b, size) {
		slices.Reverse(e)
	}
	return b
}

func hash(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

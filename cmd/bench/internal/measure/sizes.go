package measure

import "fmt"

// More elements of rows of logits than this would not fit into the memory of most machines.
const (
	maxElements = 1 << 28 // in the host's memory
	maxOnGPU    = 1 << 33 // in a GPU's, where the host has few of the rows
)

// Sizes are those of workloads. Rows may be 0: rows of logits are then so many that they
// take Stream bytes, or by default StreamBytes.
type Sizes struct {
	Vocabs, Workers []int
	Rows            int
	Stream          int
}

// CheckElements returns an error if rows of logits would have too many elements, for the
// host or else for a GPU alone.
func (s Sizes) CheckElements(host bool) error {
	most := int64(maxOnGPU)
	if host {
		most = maxElements
	}
	for _, v := range s.Vocabs {
		if int64(s.Rows) > most/int64(v) {
			return fmt.Errorf("-rows is %d and -vocab %d, want at most %d elements", s.Rows, v, most)
		}
	}
	return nil
}

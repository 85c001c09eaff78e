package rollout

import (
	"archive/zip"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/atomicfile"
)

// WriteNPZ writes a .npz file of the tensors, in the order given, for numpy.load: one
// array under the name of each. Equal arguments give equal files. NumPy has no BF16, so
// that BF16 is written as float32, which holds every value of it. See Write for how the
// file gets its path.
func WriteNPZ(path string, tensors []Tensor) error {
	return atomicfile.Write(path, func(w io.Writer) error { return EncodeNPZ(w, tensors) })
}

// EncodeNPZ writes to w what WriteNPZ writes to a file.
func EncodeNPZ(w io.Writer, tensors []Tensor) error {
	z := zip.NewWriter(w)
	seen := make(map[string]bool)
	for _, t := range tensors {
		_, err := t.check(seen)
		if err == nil {
			err = t.encodeNPY(z)
		}
		if err != nil {
			return fmt.Errorf("tensor %s: %w", quote(t.Name), err)
		}
	}
	return z.Close()
}

// encodeNPY writes the tensor as a file of z.
func (t Tensor) encodeNPY(z *zip.Writer) error {
	// The first moment that zip files know: equal tensors give equal files.
	file, err := z.CreateHeader(&zip.FileHeader{Name: t.Name + ".npy",
		Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		return err
	}
	descr := map[string]string{"U8": "|u1", "I32": "<i4", "I64": "<i8", "F32": "<f4", "BF16": "<f4",
		"F16": "<f2"}[dtypeOf(t.Data)]
	if _, err := file.Write(npyHead(descr, t.Shape)); err != nil {
		return err
	}
	halves, ok := t.Data.([]reweight.BF16)
	if !ok {
		_, err = file.Write(dataOf(t.Data))
		return err
	}
	wide := make([]float32, 0, npyChunk)
	for part := range slices.Chunk(halves, npyChunk) {
		wide = wide[:0]
		for _, h := range part {
			wide = append(wide, h.Float32())
		}
		if _, err := file.Write(dataOf(wide)); err != nil {
			return err
		}
	}
	return nil
}

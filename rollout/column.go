package rollout

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A Column is a tensor of float32 values, of one dimension, that come piece by piece. They
// are kept in a file beside the one that they are written to, as a Writer keeps its
// arrays. It is for one goroutine at a time.
type Column struct {
	path  string // of the file that it is written to
	name  string
	dtype string  // F32, and in a Writer any other
	shape []int64 // of what was appended
	size  int64   // in bytes
	file  *atomicfile.Temporary
	buf   *bufio.Writer
}

// NewColumn returns an empty column of that name for the file of that path.
func NewColumn(path, name string) (*Column, error) { return newColumn(path, vector(name, []float32{})) }

// newColumn returns an empty column for what is like the tensor.
func newColumn(path string, t Tensor) (*Column, error) {
	file, err := atomicfile.NewTemporary(filepath.Dir(path), 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", printable.Text(path), err)
	}
	file.Unname() // what has no name is gone when the program ends
	shape := slices.Clone(t.Shape)
	shape[0] = 0
	return &Column{
		path: path, name: t.Name, dtype: dtypeOf(t.Data), shape: shape,
		file: file, buf: bufio.NewWriterSize(file, 1<<16),
	}, nil
}

// Append appends values.
func (c *Column) Append(values []float32) error { return c.add(vector(c.name, values)) }

// add appends a tensor that is like the column but for its first dimension.
func (c *Column) add(t Tensor) error {
	data := dataOf(t.Data)
	c.size += int64(len(data))
	c.shape[0] += t.Shape[0]
	_, err := c.buf.Write(data)
	return c.inFile(err)
}

// Tensor returns the column as a tensor for Write, which can write it once.
func (c *Column) Tensor() (Tensor, error) {
	err := c.buf.Flush()
	if err == nil {
		_, err = c.file.Seek(0, io.SeekStart)
	}
	return Tensor{Name: c.name, Shape: c.shape, Data: c}, c.inFile(err)
}

func (c *Column) inFile(err error) error {
	where := fmt.Sprintf("%s: a temporary file for %s beside it", printable.Text(c.path), c.name)
	return inContext(where, atomicfile.Cause(err))
}

// copyTo writes the data and gives back the room that it takes on disk.
func (c *Column) copyTo(w io.Writer) error {
	n, err := io.Copy(w, c.file)
	c.Close()
	if err == nil && n != c.size {
		err = fmt.Errorf("its temporary file has %d bytes, want %d", n, c.size)
	}
	return err
}

// Close removes the column's file.
func (c *Column) Close() { c.file.Discard() }

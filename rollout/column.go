package rollout

// A Column is a tensor of float32 values, of one dimension, that come piece by piece. They
// are kept in a file beside the one that they are written to, as a Writer keeps its
// arrays. It is for one goroutine at a time.
type Column struct {
	path, name string
	spool      *spool
}

// NewColumn returns an empty column of that name for the file of that path.
func NewColumn(path, name string) (*Column, error) {
	s, err := newSpool(path, vector(name, []float32{}))
	if err != nil {
		return nil, err
	}
	return &Column{path, name, s}, nil
}

// Append appends values.
func (c *Column) Append(values []float32) error {
	if err := c.spool.write(dataOf(values)); err != nil {
		return inSpool(c.path, c.name, err)
	}
	c.spool.shape[0] += int64(len(values))
	return nil
}

// Tensor returns the column as a tensor for Write, which can write it once.
func (c *Column) Tensor() (Tensor, error) {
	if err := c.spool.rewind(); err != nil {
		return Tensor{}, inSpool(c.path, c.name, err)
	}
	return Tensor{Name: c.name, Shape: c.spool.shape, Data: c.spool}, nil
}

// Close removes the column's file.
func (c *Column) Close() { c.spool.close() }

package gpu

import (
	"math"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
)

// Rows are rows of Vocab logits each in device memory, in one of three formats. Row r
// begins at Ptr + r * Stride * DType.Size(): a view of a larger array has a Stride of
// more than its Vocab. Rows may begin anywhere that 16 does not divide, but the bytes
// back to a multiple of 16 must be readable: they are if the allocation that the rows
// lie in begins at one, as every allocation on a device does.
type Rows struct {
	Ptr    Ptr // the first logit of row 0
	DType  reweight.DType
	Rows   int    // in memory
	Vocab  int    // logits of a row, at most 2^31 - 1
	Stride int    // logits from the beginning of a row to that of the next; 0 means Vocab
	Index  *Index // the rows that are wanted; nil means all

	// Rows may come in sequences, as those of [B, T, Vocab] do: row r is then row r % Sequence
	// of sequence r / Sequence, which begins SequenceStride logits after the one before.
	Sequence       int // rows of a sequence; 0 means that all rows are Stride apart
	SequenceStride int // 0 means Sequence * Stride
}

// An Index lists rows by their numbers. A call with an index reads and writes the
// elements of these rows in its arrays, which still have one element for each row in
// memory, and leaves all others alone.
type Index struct {
	Ptr Ptr // [N] int64, each 0 to Rows - 1, and no two alike
	N   int // 0 means no rows
}

// IDs are the chosen ids of rows of logits.
type IDs struct {
	Ptr   Ptr  // [Rows]
	Int64 bool // int64, else int32

	// SequenceStride is how many ids there are from the first of a sequence of the logits to
	// that of the next; 0 means Sequence.
	SequenceStride int
}

// wanted returns how many rows a call does.
func (l *Rows) wanted() int {
	if l.Index != nil {
		return l.Index.N
	}
	return l.Rows
}

// stride returns the logits from one row to the next.
func (l *Rows) stride() int {
	if l.Stride == 0 {
		return l.Vocab
	}
	return l.Stride
}

// gap returns how many logits the first row of a sequence lies further behind the row
// before it than Stride.
func (l *Rows) gap() int {
	if l.SequenceStride == 0 {
		return 0
	}
	return l.SequenceStride - l.Sequence*l.stride()
}

// checkShape says what is wrong with the numbers.
func (l *Rows) checkShape(arg string) error {
	switch {
	case l.DType > reweight.DTypeF16:
		return badInput(arg+".DType", problem.NoFormat, l.DType)
	case l.Vocab < 1:
		return badInput(arg, problem.NoVocab, l.Vocab)
	case l.Vocab > math.MaxInt32:
		return badInput(arg, problem.VocabSize, l.Vocab, math.MaxInt32)
	case l.Rows < 0:
		return badInput(arg+".Rows", problem.CountNotNegative, l.Rows)
	case l.stride() < l.Vocab:
		return badInput(arg+".Stride", problem.ShortStride, l.Stride, l.Vocab)
	case l.Rows > 1 && l.stride() > math.MaxInt/l.DType.Size()/l.Rows:
		return badInput(arg, problem.Addresses, l.Rows, l.stride())
	case l.Sequence < 0:
		return badInput(arg+".Sequence", problem.CountNotNegative, l.Sequence)
	case l.SequenceStride < 0:
		return badInput(arg+".SequenceStride", problem.CountNotNegative, l.SequenceStride)
	case l.SequenceStride > 0 && l.Sequence == 0:
		return badInput(arg+".Sequence", problem.CountPositive, l.Sequence)
	case l.Sequence > 0 && l.SequenceStride > math.MaxInt/l.DType.Size()/(l.Rows/l.Sequence+1):
		return badInput(arg+".SequenceStride", problem.Addresses, l.Rows, l.SequenceStride)
	case l.Index != nil && (l.Index.N < 0 || l.Index.N > l.Rows):
		return badInput("logits.Index", problem.ViewIndex, l.Index.N, l.Rows)
	}
	return nil
}

// checkPtrs says what is wrong with the addresses.
func (l *Rows) checkPtrs(arg string) error {
	if err := checkPtr(arg, l.Ptr, l.DType.Size()); err != nil || l.Index == nil {
		return err
	}
	return checkPtr("logits.Index", l.Index.Ptr, 8)
}

// checkIDs says what is wrong with the ids of logits.
func checkIDs(ids IDs, logits *Rows) error {
	switch {
	case ids.SequenceStride < 0:
		return badInput("ids.SequenceStride", problem.CountNotNegative, ids.SequenceStride)
	case ids.SequenceStride > 0 && logits.Sequence == 0:
		return badInput("logits.Sequence", problem.CountPositive, 0)
	case ids.Int64:
		return checkPtr("ids", ids.Ptr, 8)
	}
	return checkPtr("ids", ids.Ptr, 4)
}

func checkTemperature(tau float64) error {
	const low, high = 1e-30, 1e30 // as on the CPU
	if !(tau >= low && tau <= high) {
		return badInput("Temperature", problem.Range, tau, low, high)
	}
	return nil
}

// at returns which of two kernels serves the temperature.
func at(temperature float64, names [2]string) string {
	if temperature == 1 {
		return names[0]
	}
	return names[1]
}

// rowsParams are Rows of rows.cuh.
type rowsParams struct {
	logits      Ptr
	stride      int64 // bytes
	sequence    uint64
	gap         int64 // bytes
	count       int64
	index       Ptr
	selected    int64
	ids         Ptr
	idGap       int64
	status      Ptr
	temperature float64
	vocab       int32
	wideIDs     uint32
}

// rowsParams returns what the kernels are told about the rows of a call.
func (ws *Workspace) rowsParams(logits *Rows, ids IDs, temperature float64) rowsParams {
	size := int64(logits.DType.Size())
	p := rowsParams{
		logits:      logits.Ptr,
		stride:      int64(logits.stride()) * size,
		sequence:    uint64(max(logits.Rows, 1)),
		gap:         int64(logits.gap()) * size,
		count:       int64(logits.Rows),
		selected:    int64(logits.wanted()),
		ids:         ids.Ptr,
		status:      ws.status,
		temperature: temperature,
		vocab:       int32(logits.Vocab),
	}
	if logits.Sequence > 0 {
		p.sequence = uint64(logits.Sequence)
	}
	if ids.SequenceStride > 0 {
		p.idGap = int64(ids.SequenceStride - logits.Sequence)
	}
	if logits.Index != nil {
		p.index = logits.Index.Ptr
	}
	if ids.Int64 {
		p.wideIDs = 1
	}
	return p
}

package reweight

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// How the rows of a call are shared among workers: TokenStats and RowGradient
// fill in a rowJob, runRows starts the workers, and each of them takes rows
// until none is left.

// rowJob is one call's work on rows of logits: token statistics, or the gradient
// if dst is set.
type rowJob struct {
	isa    ISA
	rows   int
	take   int // rows that a worker takes at a time
	logits Logits
	ids    []int32
	tau    float64

	// Token statistics.
	stats    Stats
	want     rowWant // of the pass at tau
	logVocab float64 // the largest entropy

	// The gradient.
	dst   Logits
	of    RowGradientInput
	bonus float64
}

// rowScratch holds the call at hand for its workers.
type rowScratch struct {
	job  rowJob
	next atomic.Int64 // the first row that no worker has taken
	wg   sync.WaitGroup
	work func() // takes rows; built once, because starting it as a goroutine then allocates nothing
}

// runRows does the job's rows among the workers.
func (ws *Workspace) runRows(job rowJob) {
	n := ws.Workers
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	if n = min(n, job.rows); n == 0 {
		return
	}
	// Enough elements at a time to hide the counter, few enough to share well.
	job.take = max(1, min(pieceSize/job.logits.Vocab, job.rows/(4*n)))
	n = min(n, (job.rows+job.take-1)/job.take)
	s := &ws.rows
	s.job = job
	s.next.Store(0)
	if s.work == nil {
		s.work = func() { s.takeRows(); s.wg.Done() }
	}
	s.wg.Add(n - 1)
	for range n - 1 {
		go s.work()
	}
	s.takeRows()
	s.wg.Wait()
	s.job = rowJob{} // keep nothing of the caller's alive
}

// takeRows does rows until none is left.
func (s *rowScratch) takeRows() {
	j := &s.job
	for {
		hi := int(s.next.Add(int64(j.take)))
		lo := hi - j.take
		if lo >= j.rows {
			return
		}
		for r := lo; r < min(hi, j.rows); r++ {
			if j.dst.empty() {
				j.statsRow(r)
			} else {
				j.gradientRow(r)
			}
		}
	}
}

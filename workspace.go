package reweight

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A Workspace holds the scratch memory and the worker settings that calls
// reuse, so that in steady state no call allocates. The zero value is ready: the
// best instruction set and one worker per CPU. Results depend on neither. A
// Workspace serves one call at a time.
type Workspace struct {
	Workers int // goroutines that share the rows of logits; 0 means GOMAXPROCS
	Path    ISA // which implementation of the kernels; Auto is the best

	job  rowJob
	next atomic.Int64
	wg   sync.WaitGroup
	work func() // built once: starting it as a goroutine allocates nothing

	spans    spanScratch
	spanSums []float64
	groups   []int32
	signal   []float32
	rewards  []groupReward
	drift    []spanDrift
	moment   momentSums
	sums     surrogateSums
	exps     laneSum
}

// rowJob is one call's work on rows of logits, shared by its workers: token
// statistics, or the gradient if dst is set.
type rowJob struct {
	path   ISA
	rows   int
	take   int // rows that a worker takes at a time
	logits Logits
	ids    []int32
	tau    float64

	stats    Stats
	logVocab float64 // the largest entropy

	dst                     Logits
	logprobs, entropy, grad []float32
	bonus                   float64
}

// runRows does job's rows among the workers.
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
	ws.job = job
	ws.next.Store(0)
	if ws.work == nil {
		ws.work = func() { ws.takeRows(); ws.wg.Done() }
	}
	ws.wg.Add(n - 1)
	for range n - 1 {
		go ws.work()
	}
	ws.takeRows()
	ws.wg.Wait()
	ws.job = rowJob{} // keep nothing of the caller's alive
}

func (ws *Workspace) takeRows() {
	j := &ws.job
	for {
		hi := int(ws.next.Add(int64(j.take)))
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

// grow returns s with length n, its contents unspecified.
func grow[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}

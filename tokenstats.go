package reweight

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight/internal/problem"
)

// Stats are the outputs of TokenStats, one element per row of logits, in nats.
// A nil slice is not computed: without Entropy a pass does less work.
type Stats struct {
	LSE     []float32 // logsumexp of the raw logits; the energy E is -LSE
	Entropy []float32 // entropy H of softmax(x / Temperature)
	Logprob []float32 // log-probability of the row's id under softmax(x / Temperature)

	LogSumSqProbs []float32 // log of the sum of the squared probabilities of softmax(x / Temperature)
}

// TokenStatsOptions are the options of [Workspace.TokenStats]. The zero value is an error.
type TokenStatsOptions struct {
	Temperature float64 // tau: 1e-30 to 1e30; LSE is always at 1
}

// DefaultTokenStats is temperature 1.
var DefaultTokenStats = TokenStatsOptions{Temperature: 1}

// TokenStats computes statistics of each row x of logits and of ids[row] = y:
//
//	LSE           = log sum_v exp(x_v)
//	Entropy       = log sum_v exp(z_v) - sum_v p_v z_v      z = x / tau, p = softmax(z)
//	Logprob       = z_y - log sum_v exp(z_v)
//	LogSumSqProbs = log sum_v p_v^2
//
// (softmax and its entropy; verl, logprobs_from_logits and entropy_from_logits; TRL,
// log_sum_sq_probs; LogSumSqProbs is minus the Renyi entropy of order 2)
// in one pass over the row (two if tau is not 1 and LSE is wanted). Each set
// slice of dst must have one element per row, and so must ids if dst.Logprob is
// set; otherwise ids is not read. An id outside [0, Vocab), a length that does
// not match or a bad temperature is an error, and nothing is written. The slices
// of dst do not overlap.
//
// Before they are rounded to float32, and for every row, the results are at most
// this far from the exact ones, in nats, with L = log Vocab:
//
//	                 temperature 1               any other temperature
//	LSE              (1.1 + 0.05 L) 1e-6         (is always at 1)
//	Logprob          (1.1 + 0.05 L) 1e-6         (1.2 + 0.085 L) 1e-6
//	Entropy          (12.6 + 0.037 L^2) 1e-6     (13.2 + 0.051 L^2) 1e-6
//	LogSumSqProbs    (4.25 + 0.12 L) 1e-6        (4.9 + 0.21 L) 1e-6
//
// plus 3e-10 + Vocab * 2^-44, which is 9e-9 at a Vocab of 151,936, and three times that
// for LogSumSqProbs. [kernels/BOUNDS.md]
// derives this, and has smaller numbers for a Vocab of at most 1,024.
//
// Entropy is at least 0 and at most log Vocab, rounded, and so is -LogSumSqProbs; Logprob
// is at most 0. Masked ids (-Inf) add nothing. A row that is all -Inf has LSE -Inf, one with
// +Inf has LSE +Inf, one with a NaN has LSE NaN, and all three have the other results NaN.
// This is what PyTorch's logsumexp, log_softmax and Categorical answer; the
// entropy of verl (entropy_from_logits) is NaN as soon as one id is masked.
//
// [kernels/BOUNDS.md]: https://github.com/seed621a2839/reweight/blob/main/kernels/BOUNDS.md
func (ws *Workspace) TokenStats(dst Stats, logits Logits, ids []int32, opt TokenStatsOptions) error {
	isa, err := ws.ISA.resolve()
	rows := logits.Rows()
	if err = cmp.Or(err, logits.check("logits", rows)); err != nil {
		return err
	}
	if dst.LSE == nil && dst.Entropy == nil && dst.Logprob == nil && dst.LogSumSqProbs == nil {
		return badInput("dst", problem.NoStats, "nil")
	}
	if err := cmp.Or(
		checkOptional("dst.LSE", dst.LSE, rows, "row"),
		checkOptional("dst.Entropy", dst.Entropy, rows, "row"),
		checkOptional("dst.Logprob", dst.Logprob, rows, "row"),
		checkOptional("dst.LogSumSqProbs", dst.LogSumSqProbs, rows, "row"),
	); err != nil {
		return err
	}
	if dst.Logprob != nil {
		if err := cmp.Or(checkLen("ids", len(ids), rows, "row"), checkIDs("ids", ids, 0, logits.Vocab)); err != nil {
			return err
		}
	}
	if err := checkTemperature("Temperature", opt.Temperature); err != nil {
		return err
	}
	want := wantSum
	if dst.Entropy != nil {
		want = wantEntropy
	}
	if dst.LogSumSqProbs != nil {
		want = wantSquares
	}
	// Calls statsRow for each row, from as many goroutines as there are workers.
	ws.runRows(rowJob{isa: isa, rows: rows, logits: logits, ids: ids, tau: opt.Temperature, stats: dst, want: want,
		logVocab: log64(float64(logits.Vocab))})
	return nil
}

// statsRow writes the statistics of row r.
func (j *rowJob) statsRow(r int) {
	x := j.logits.row(r)
	if j.stats.LSE != nil {
		want := wantSum
		if j.tau == 1 {
			want = j.want
		}
		q := sumRow(j.isa, x, 1, want)
		j.stats.LSE[r] = float32(q.ref + q.logS)
		if j.tau == 1 {
			j.write(r, x, &q)
			return
		}
	}
	if j.want != wantSum || j.stats.Logprob != nil {
		q := sumRow(j.isa, x, j.tau, j.want)
		j.write(r, x, &q)
	}
}

// write sets the outputs of row r but its LSE.
func (j *rowJob) write(r int, x Logits, q *rowSums) {
	if j.stats.Entropy != nil {
		j.stats.Entropy[r] = float32(boundEntropy(q.entropy, j.logVocab))
	}
	if j.stats.Logprob != nil {
		j.stats.Logprob[r] = float32(q.logprob(x.at(int(j.ids[r])), j.tau))
	}
	if j.stats.LogSumSqProbs != nil {
		j.stats.LogSumSqProbs[r] = float32(0 - boundEntropy(q.squares, j.logVocab))
	}
}

// rowSums is what a pass over a row x leaves: sum_v exp(x_v/tau) is
// exp(ref/tau + logS). Both are NaN or infinite where the contract says so.
type rowSums struct {
	ref     float64 // in units of x, near the largest element
	logS    float64
	entropy float64 // not bounded yet; nothing if the pass left it out
	squares float64 // -log sum_v p_v^2, likewise
}

// logprob returns the log-probability of an element of value x; it is formed
// before anything is rounded to float32.
func (q *rowSums) logprob(x float32, tau float64) float64 {
	if q.ref-q.ref != 0 {
		return math.NaN() // all -Inf, or +Inf somewhere
	}
	return min(0, (float64(x)-q.ref)/tau-q.logS)
}

// sumRow passes once over the row x. The reference c is the largest element of
// the first block that has a finite one, in log2 units, and is replaced only
// when a block exceeds it by 2^headroom: most rows are read once, with no
// rescaling.
func sumRow(isa ISA, x Logits, tau float64, want rowWant) rowSums {
	n := x.Vocab
	st := rowState{k: log2E32, alarm: alarm}
	if tau != 1 {
		if tau < slowTauMin || tau > slowTauMax {
			return sumRowSlow(x, tau)
		}
		st.k, st.kLo = splitScale(tau)
	}
	i, m := 0, float32(math.Inf(-1))
	for ; i < n && m < -math.MaxFloat32; i += blockSize { // blocks of -Inf add nothing
		m = isa.blockMax(x, i, min(i+blockSize, n))
	}
	if !st.setReference(m) {
		return sumRowSlow(x, tau)
	}
	var S, T, Q float64
	for i -= blockSize; ; {
		piece := min(i+pieceSize, n)
		i = isa.rowBlocks(x, i, piece, &st, want)
		if i == n {
			break
		}
		if i == piece {
			continue
		}
		// The block at i may exceed the reference: see how far.
		end := min(i+blockSize, n)
		m := isa.blockMax(x, i, end)
		if m <= st.threshold { // a false alarm: add the block as it is
			st.alarm = float32(math.Inf(1))
			i = isa.rowBlocks(x, i, end, &st, want)
			st.alarm = alarm
			if i == n {
				break
			}
			continue
		}
		c := st.c
		S += tree(&st.s)
		T += tree(&st.t)
		Q += tree(&st.q)
		st.s, st.t, st.q = [lanes]float64{}, [lanes]float64{}, [lanes]float64{}
		if !st.setReference(m) {
			return sumRowSlow(x, tau)
		}
		// Sum of (y + d) 2^(y + d), with d the step back to the new reference.
		d := float64(c) - float64(st.c)
		scale := exp64(d * math.Ln2)
		T = (T + float64(d*S)) * scale
		S *= scale
		Q *= scale * scale
	}
	S += tree(&st.s)
	T += tree(&st.t)
	Q += tree(&st.q)
	if S-S != 0 || T-T != 0 { // a NaN or +Inf past the first block shows in one of them
		return sumRowSlow(x, tau)
	}
	k := float64(st.k) + float64(st.kLo)
	q := rowSums{ref: float64(st.c) / k, logS: log64(S)}
	q.entropy = q.logS - float64(math.Ln2*(T/S))
	if want == wantSquares {
		q.squares = float64(2*q.logS) - log64(Q)
	}
	return q
}

// boundEntropy keeps an entropy between 0 and most, where rounding errors may take
// it out, and sets one below 2^-100 to 0: masked ids count as 2^minY and not as 0.
func boundEntropy(h, most float64) float64 {
	if h < 0x1p-100 {
		return 0
	}
	return min(h, most)
}

// setReference takes m, the largest element of a block, as the reference, and
// reports whether it is finite and small enough for float32 log2 units.
func (st *rowState) setReference(m float32) bool {
	st.c = float32(m * st.k)
	st.threshold = (st.c + headroom) / st.k
	return st.c > -maxMagnY && st.c < maxMagnY
}

// splitScale returns log2(e) / tau as the sum of a float32 and a smaller
// positive one. kLo must not be 0 or negative: x may be -Inf.
func splitScale(tau float64) (k, kLo float32) {
	exact := log2E / tau
	k = float32(exact)
	if float64(k) >= exact {
		k = math.Nextafter32(k, 0)
	}
	return k, float32(exact - float64(k))
}

// sumRowSlow sums the rows that the way in float32 cannot: those with a NaN, with
// an infinite maximum, or with elements too large for log2 units in float32.
func sumRowSlow(x Logits, tau float64) rowSums {
	nan := math.NaN()
	m := float32(math.Inf(-1))
	for i := range x.Vocab {
		v := x.at(i)
		if v != v {
			return rowSums{ref: nan, logS: nan, entropy: nan, squares: nan}
		}
		m = max(m, v)
	}
	if math.IsInf(float64(m), 0) {
		return rowSums{ref: float64(m), entropy: nan, squares: nan}
	}
	// In units of 1, not log2: these sums are few and exact enough as they are.
	var S, T, Q float64
	for i := range x.Vocab {
		z := (float64(x.at(i)) - float64(m)) / tau
		if p := exp64(z); p > 0 {
			S += p
			T += float64(z * p)
			Q += float64(p * p)
		}
	}
	logS := log64(S)
	return rowSums{ref: float64(m), logS: logS, entropy: logS - T/S, squares: float64(2*logS) - log64(Q)}
}

package gpu

import (
	"cmp"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/internal/shape"
)

// Stats are the outputs of TokenStats, in nats: arrays of float32 with one element for
// each row of logits in memory. 0 is not computed.
type Stats struct {
	LSE     Ptr // logsumexp of the raw logits; the energy E is -LSE
	Entropy Ptr // entropy H of softmax(x / Temperature)
	Logprob Ptr // log-probability of the row's id under softmax(x / Temperature)

	LogSumSqProbs Ptr // log of the sum of the squared probabilities of softmax(x / Temperature)
}

// tokenStatsParams are TokenStats of token_stats.cuh.
type tokenStatsParams struct {
	exact                 Ptr // 0, or where a test wants the float64 behind the results
	lse, entropy, logprob Ptr
	logSumSqProbs         Ptr
	rows                  rowsParams
}

// TokenStats computes statistics of each row of logits and of its id, as
// reweight.Workspace.TokenStats does. ids is read only if dst.Logprob is set. If the
// temperature is not 1 and LSE is wanted, the rows are read twice. The arrays of dst
// overlap neither each other nor the inputs.
//
// A wrong shape, address or temperature is an error, and nothing is queued. An id that
// is not in the vocabulary gives its row a Logprob of NaN, an element of the index that
// is not a row is passed over, and Check returns either.
func (ws *Workspace) TokenStats(dst Stats, logits Rows, ids IDs, opt reweight.TokenStatsOptions) error {
	if err := cmp.Or(logits.checkShape("logits"), checkTemperature(opt.Temperature)); err != nil ||
		logits.wanted() == 0 {
		return err
	}
	err := logits.checkPtrs("logits")
	if err == nil && dst == (Stats{}) {
		err = badInput("dst", problem.NoStats, "0")
	}
	err = cmp.Or(err,
		checkAligned("dst.LSE", dst.LSE, 4),
		checkAligned("dst.Entropy", dst.Entropy, 4),
		checkAligned("dst.Logprob", dst.Logprob, 4),
		checkAligned("dst.LogSumSqProbs", dst.LogSumSqProbs, 4),
	)
	if err == nil && dst.Logprob != 0 {
		err = checkIDs(ids, &logits)
	}
	if err != nil {
		return err
	}
	if opt.Temperature == 1 {
		return ws.tokenStats(dst, &logits, ids, 1)
	}
	if dst.LSE != 0 {
		if err := ws.tokenStats(Stats{LSE: dst.LSE}, &logits, ids, 1); err != nil {
			return err
		}
		dst.LSE = 0
	}
	if dst == (Stats{}) {
		return nil
	}
	return ws.tokenStats(dst, &logits, ids, opt.Temperature)
}

// tokenStats queues one pass over the rows, with LSE at the temperature of the others.
func (ws *Workspace) tokenStats(dst Stats, logits *Rows, ids IDs, temperature float64) error {
	p := &ws.params.stats
	*p = tokenStatsParams{lse: dst.LSE, entropy: dst.Entropy, logprob: dst.Logprob, logSumSqProbs: dst.LogSumSqProbs,
		rows: ws.rowsParams(logits, ids, temperature)}
	names := shape.Stats
	if dst.LogSumSqProbs != 0 {
		names = shape.Squares
	}
	return launch(ws, p, step{at(temperature, names[logits.DType]), logits.wanted()})
}

// Package native says what reweight.h declares, for what calls the C library and for what
// `go generate ./...` writes. native/build makes the library.
package native

import (
	"fmt"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
)

// Names returns what the numbers of an argument stand for: "f32", "bf16".
func Names(a problem.Argument) []string { return names[a.C] }

var names = map[string][]string{
	"isa":           namesTo(reweight.NEON),
	"dst":           namesTo(reweight.DTypeF16),
	"logits":        namesTo(reweight.DTypeF16),
	"signal":        namesTo(reweight.SignalLogRatio),
	"scope":         namesTo(reweight.ScopeBatch),
	"aggregation":   namesTo(reweight.SeqMeanTokenSumNorm),
	"normalization": namesTo(reweight.NormalizeNone),
	"level":         namesTo(reweight.CorrectGeometric),
	"statistic":     namesTo(reweight.RejectSeqMaxK3),
	"policy":        namesTo(reweight.PolicyKLCov),
	"sequence":      namesTo(reweight.SequenceSpan),
	"kl":            namesTo(reweight.KLAbsPlus),
}

// namesTo returns the names of the numbers from 0 to last.
func namesTo[E interface {
	~uint8
	fmt.Stringer
}](last E) (names []string) {
	for e := E(0); e <= last; e++ {
		names = append(names, e.String())
	}
	return names
}

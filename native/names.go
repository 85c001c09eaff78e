// Package native says what reweight.h declares, for what calls the C library and for what
// `go generate ./gpu` writes. native/build makes the library.
package native

import (
	"fmt"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
)

// Names returns what the numbers of an argument stand for: "f32", "bf16".
func Names(a problem.Argument) []string {
	switch a.C {
	case "isa":
		return namesTo(reweight.NEON)
	case "dst", "logits":
		return namesTo(reweight.DTypeF16)
	case "signal":
		return namesTo(reweight.SignalLogRatio)
	case "scope":
		return namesTo(reweight.ScopeBatch)
	case "aggregation":
		return namesTo(reweight.SeqMeanTokenSumNorm)
	case "normalization":
		return namesTo(reweight.NormalizeNone)
	case "level":
		return namesTo(reweight.CorrectGeometric)
	case "statistic":
		return namesTo(reweight.RejectSeqMaxK3)
	case "policy":
		return namesTo(reweight.PolicyKLCov)
	case "sequence":
		return namesTo(reweight.SequenceSpan)
	case "kl":
		return namesTo(reweight.KLAbsPlus)
	}
	return nil
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

// Package native says what reweight.h declares, for what calls the C library and for what
// `go generate ./...` writes. native/build makes the library.
package native

import (
	"fmt"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/scheme"
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
	"policy":        policies(),
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

// Losses returns the entries of the catalogue that are the first with their policy loss, in the
// order of the numbers that C has for them.
func Losses() (all []*scheme.Entry) {
	seen := map[string]bool{}
	for _, e := range scheme.Entries() {
		if e.Kind != scheme.Loss {
			continue
		}
		if name := PolicyOf(e).String(); !seen[name] {
			seen[name] = true
			all = append(all, e)
		}
	}
	return all
}

// PolicyOf returns the policy loss of an entry that is one.
func PolicyOf(e *scheme.Entry) reweight.Policy { return e.Defaults().Loss.Policy }

// policies returns the names of the policy losses.
func policies() (names []string) {
	for _, e := range Losses() {
		names = append(names, PolicyOf(e).String())
	}
	return names
}

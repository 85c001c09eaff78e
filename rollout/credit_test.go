package rollout

import (
	"math"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
)

// sameCredit wants a batch that was read to give the weights, the advantages, the loss and
// the gradient of the rollouts themselves, to the bit. Arrays that the batch lacks are left
// out of the rollouts, and the named ones, which its source does not have, are the batch's.
func sameCredit(t *testing.T, what string, got, want *reweight.Batch, names ...string) {
	t.Helper()
	w := *want
	arrays, none := w.Arrays(), new(reweight.Batch).Arrays()
	for i, a := range got.Arrays() {
		switch {
		case a.Len() == 0:
			setArray(arrays[i], none[i])
		case slices.Contains(names, a.Name):
			setArray(arrays[i], a)
		}
	}
	x, y := credit(t, what, *got), credit(t, what, w)
	for name, values := range x {
		if len(values) == 0 || !sameFloats(values, y[name]) {
			t.Errorf("%s: %s differs from that of the rollouts", what, name)
		}
	}
}

// credit returns what a trainer takes from a batch.
func credit(t *testing.T, what string, b reweight.Batch) map[string][]float32 {
	t.Helper()
	var ws reweight.Workspace
	of := map[string][]float32{"weights": make([]float32, b.Tokens()), "advantages": make([]float32, b.Tokens()), "gradient": make([]float32, b.Tokens())}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	opt := reweight.DefaultActFocus
	opt.Signal = reweight.SignalSurprisal
	_, err := ws.ActFocus(of["weights"], &b, opt)
	check(err)
	if b.Rewards != nil {
		check(ws.GRPO(of["advantages"], &b, reweight.DefaultGRPO))
	} else {
		copy(of["advantages"], b.Advantages)
	}
	if b.Entropy != nil {
		factors := make([]float32, b.Tokens())
		check(ws.AEM(factors, &b, reweight.DefaultAEM))
		check(ws.Multiply(of["advantages"], of["advantages"], factors))
	}
	b.Advantages = of["advantages"]
	loss, err := ws.Loss(of["gradient"], of["weights"], &b, reweight.DefaultLoss)
	check(err)
	bits := math.Float64bits(loss.Loss)
	of["loss"] = []float32{math.Float32frombits(uint32(bits >> 32)), math.Float32frombits(uint32(bits))}
	return of
}

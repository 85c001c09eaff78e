package train

import (
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
)

// played returns a batch that knows its advantages, and the trainer that it is of.
func played(t *testing.T, algorithm string) (*trainer, *reweight.Batch) {
	tr := &trainer{Settings: Default, algorithm: algorithm, reference: talker()}
	tr.agent = talker()
	for i := range tr.agent.Parameters { // not the reference any more
		tr.agent.Parameters[i] *= 1.25
	}
	tr.seats.play(tr.agent, recorders, starts(7, 5, forTraining, 0, 0), 1)
	b := &tr.seats.batch
	if err := tr.describe(b); err != nil {
		t.Fatal(err)
	}
	if err := tr.advantages(b); err != nil {
		t.Fatal(err)
	}
	if slices.Max(b.Rewards) == 0 || slices.Max(b.Advantages) == 0 {
		t.Fatal("no episode succeeds")
	}
	return tr, b
}

// Each scheme leaves the advantages, the weights and the loss of its paper, by
// calls of package reweight into memory of their own.
func TestSchemes(t *testing.T) {
	tr, batch := played(t, "grpo")
	n := batch.Tokens()
	// What a scheme changes: the loss, and advantages and weights where they are not nil.
	type credit struct {
		loss                reweight.LossOptions
		advantages, weights []float32
	}
	var ws reweight.Workspace
	array := func(f func(dst []float32) error) []float32 {
		dst := make([]float32, n)
		if err := f(dst); err != nil {
			t.Fatal(err)
		}
		return dst
	}
	changed := func(f func(b *reweight.Batch) error) []float32 {
		b := *batch
		b.Advantages = slices.Clone(batch.Advantages)
		if err := f(&b); err != nil {
			t.Fatal(err)
		}
		return b.Advantages
	}
	focus := array(func(dst []float32) error {
		_, err := ws.ActFocus(dst, batch, reweight.DefaultActFocus)
		return err
	})
	factors := array(func(dst []float32) error { return ws.AEM(dst, batch, reweight.DefaultAEM) })
	modulated := array(func(dst []float32) error {
		for i, factor := range factors {
			dst[i] = factor * batch.Advantages[i]
		}
		return nil
	})
	mask := array(func(dst []float32) error {
		_, err := ws.EntropyMask(dst, batch, reweight.DefaultEntropyMask)
		return err
	})
	want := map[string]credit{
		"uniform":      {reweight.DefaultLoss, nil, nil},
		"actfocus":     {reweight.DefaultLoss, nil, focus},
		"aem":          {reweight.DefaultLoss, modulated, nil},
		"actfocus+aem": {reweight.DefaultLoss, modulated, focus},
		"empg":         {reweight.DefaultLoss, changed(func(b *reweight.Batch) error { return ws.EMPG(b.Advantages, b, reweight.DefaultEMPG) }), nil},
		"gtpo":         {reweight.DefaultLoss, changed(func(b *reweight.Batch) error { return ws.GTPO(b.Advantages, b, reweight.DefaultGTPO) }), nil},
		"entropy-mask": {reweight.DefaultLoss, nil, mask},
		"gspo":         {reweight.DefaultGSPO, nil, nil},
		"cispo":        {reweight.DefaultCISPO, nil, nil},
		"sapo":         {reweight.DefaultSAPO, nil, nil},
		"dppo-tv":      {reweight.DefaultDPPOTV, nil, nil},
	}
	if len(Schemes) != len(want) {
		t.Errorf("%d schemes, want %d", len(Schemes), len(want))
	}
	for _, listed := range Schemes {
		scheme, err := schemeNamed(listed.Name)
		if err != nil {
			t.Fatal(err)
		}
		b := *batch
		b.Advantages = slices.Clone(batch.Advantages)
		weights, err := scheme.Credit(&tr.ws, &b, make([]float32, n))
		if err != nil {
			t.Fatal(err)
		}
		want := want[scheme.Name]
		advantages := want.advantages
		if advantages == nil {
			advantages = batch.Advantages
		} else if slices.Equal(advantages, batch.Advantages) {
			t.Errorf("%s: the batch does not show what the scheme does", scheme.Name)
		}
		if !slices.Equal(b.Advantages, advantages) {
			t.Errorf("%s: other advantages", scheme.Name)
		}
		if (weights == nil) != (want.weights == nil) || !slices.Equal(weights, want.weights) {
			t.Errorf("%s: other weights", scheme.Name)
		}
		if scheme.Loss != want.loss {
			t.Errorf("%s: the loss is %+v, want %+v", scheme.Name, scheme.Loss, want.loss)
		}
	}
	for i, name := range []string{"uniform", "actfocus", "aem", "actfocus+aem"} {
		if Schemes[i].Name != name {
			t.Errorf("scheme %d is %s, want %s", i, Schemes[i].Name, name)
		}
	}
}

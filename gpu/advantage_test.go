package gpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
)

// checkGRPO runs GRPO on the device and wants what the CPU computes.
func checkGRPO(m *memory, ws *gpu.Workspace, b *reweight.Batch, opt reweight.GRPOOptions) {
	m.t.Helper()
	want := make([]float32, b.Tokens())
	wantErr := portable().GRPO(want, b, opt)
	d := placeBatch(m, b, nil)
	advantages := place(m, make([]float32, b.Tokens()), true)
	if err := ws.GRPO(advantages, d, opt); err != nil {
		m.t.Fatal(err)
	}
	wantSame(m.t, ws.Check(), wantErr)
	if got := read[float32](m, advantages, b.Tokens()); wantErr != nil {
		wantNaN(m.t, "advantages", got)
	} else {
		wantBits(m.t, "advantages", got, want)
	}
	m.release()
}

// TestGRPO compares random batches bit by bit with the portable kernels, wrong ones
// included.
func TestGRPO(t *testing.T) {
	dev := openDevice(t)
	ws := newWorkspace(t, dev, batchSize)
	flaws := append(slices.Clip(layoutFlaws), flaw{"reward", func(r maker, b *reweight.Batch) {
		b.Rewards[anyIndex(r, b.Rewards)] = pick(r, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)))
	}})
	for seed := range testRounds(200) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			r := maker{rand.New(rand.NewPCG(uint64(seed), 4))}
			tokens, trajectories := r.size()
			b := r.batch(tokens, trajectories)
			for range max(0, r.IntN(6)-2) {
				flaws[r.IntN(len(flaws))].make(r, b)
			}
			checkGRPO(&memory{t: t, dev: dev, r: r.Rand}, ws, b, reweight.GRPOOptions{Eps: pick(r, 0, 1e-6, 1), DivideByStd: r.IntN(3) > 0})
		})
	}
}

// TestGAE compares random batches bit by bit with the portable kernels, with all that
// may share an array, and wrong ones included.
func TestGAE(t *testing.T) {
	dev := openDevice(t)
	ws := newWorkspace(t, dev, batchSize)
	for seed := range testRounds(200) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			r := maker{rand.New(rand.NewPCG(uint64(seed), 5))}
			m := &memory{t: t, dev: dev, r: r.Rand}
			tokens, trajectories := r.size()
			b := r.batch(tokens, trajectories)
			special := r.IntN(4) == 0
			b.Values = r.floats(tokens, special)
			rewards := r.floats(tokens, special)
			if r.IntN(4) == 0 {
				layoutFlaws[r.IntN(len(layoutFlaws))].make(r, b)
			}
			opt := reweight.GAEOptions{Gamma: pick(r, 0, 1, 0.99, r.Float64()), Lambda: pick(r, 0, 1, 0.95, r.Float64())}
			want, wantReturns := make([]float32, tokens), make([]float32, tokens)
			wantErr := portable().GAE(want, wantReturns, rewards, b, opt)

			d := placeBatch(m, b, nil)
			inPlace := r.IntN(2) == 0
			advantages := place(m, rewards, inPlace)
			from, returns := advantages, gpu.Ptr(0)
			if !inPlace {
				advantages = place(m, make([]float32, tokens), true)
			}
			if r.IntN(2) == 0 {
				returns = place(m, make([]float32, tokens), true)
			}
			if err := ws.GAE(advantages, returns, from, d, opt); err != nil {
				t.Fatal(err)
			}
			wantSame(t, ws.Check(), wantErr)
			got := read[float32](m, advantages, tokens)
			gotReturns := wantReturns
			if returns != 0 {
				gotReturns = read[float32](m, returns, tokens)
			}
			if wantErr == nil {
				wantBits(t, "advantages", got, want)
				wantBits(t, "returns", gotReturns, wantReturns)
			} else {
				wantNaN(t, "advantages", got)
				if returns != 0 {
					wantNaN(t, "returns", gotReturns)
				}
			}
			m.release()
		})
	}
}

// TestNoTokens: a batch without tokens is no error, as on the CPU, and nothing is
// written.
func TestNoTokens(t *testing.T) {
	dev := openDevice(t)
	ws := newWorkspace(t, dev, gpu.Size{Trajectories: 2})
	m := &memory{t: t, dev: dev, r: rand.New(rand.NewPCG(1, 8))}
	b := &reweight.Batch{SeqOffsets: []int64{0, 0, 0}, GroupIDs: []int32{1, 1}, Rewards: []float32{0, 1}}
	d := placeBatch(m, b, nil)
	empty := place(m, []float32{}, false)
	d.SpanIDs, d.Entropy, d.Values = empty, empty, empty
	for _, err := range []error{
		ws.AEM(empty, d, reweight.DefaultAEM),
		ws.GRPO(empty, d, reweight.DefaultGRPO),
		ws.GAE(empty, empty, empty, d, reweight.DefaultGAE),
		ws.Check(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	m.release()
}

package reference

import (
	"math"
	"testing"
)

func TestGRPOGroupsThatInterleave(t *testing.T) {
	a := must[[]float64](t)(GRPO([]float64{1, 10, 3, 20, 5, 4}, []int32{-5, 90000, -5, 90000, -5, 3}, true))
	std := 10 / math.Sqrt2
	for i, want := range []float64{
		-2 / (2 + 1e-6), -5 / (std + 1e-6), 0, 5 / (std + 1e-6), 2 / (2 + 1e-6), 4 / (1 + 1e-6),
	} {
		near(t, "advantage", a[i], want, 1e-15)
	}
}

func TestTokenAdvantages(t *testing.T) {
	got := must[[]float64](t)(TokenAdvantages([]Role{0, 1, 2, 0, 1}, []int64{0, 3, 3, 5}, []float64{2, 9, -1}))
	for i, want := range []float64{0, 2, 2, 0, -1} {
		if got[i] != want {
			t.Errorf("token %d has %v, want %v", i, got[i], want)
		}
	}
}

// With gamma = lambda = 1 the advantage is the reward to come, over response
// tokens, minus the value; nothing passes from one trajectory to another.
func TestGAEIsRewardToCome(t *testing.T) {
	rewards := []float64{0, 0, 1, 0, 5, 0, -2}
	values := []float64{.5, .25, .75, 8, .5, 8, .125}
	role := []Role{1, 1, 2, 0, 1, 0, 2}
	advantages, returns, err := GAE(rewards, values, role, []int64{0, 4, 7}, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{1 - .5, 1 - .25, 1 - .75, 0, 3 - .5, -2 - .125, -2 - .125} {
		if advantages[i] != want {
			t.Errorf("advantage %d = %v, want %v", i, advantages[i], want)
		}
		if returns[i] != want+values[i] {
			t.Errorf("return %d = %v, want %v", i, returns[i], want+values[i])
		}
	}
}

func TestWhiten(t *testing.T) {
	role := []Role{1, 0, 2, 1, 1}
	x := []float64{3, 1000, -1, 7, 4}
	white := must[[]float64](t)(Whiten(x, role))
	sum, squares := 0.0, 0.0
	for i, v := range white {
		if role[i] != RoleMasked {
			sum += v
			squares += v * v
		}
	}
	near(t, "mean", sum, 0, 1e-15)
	variance := 32.75 / 3 // of 3, -1, 7, 4
	near(t, "variance", squares/3, variance/(variance+1e-8), 1e-15)
	near(t, "masked element", white[1], (1000-3.25)/math.Sqrt(variance+1e-8), 1e-15)
}

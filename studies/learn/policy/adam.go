package policy

import "math"

// Adam is the optimizer of Kingma and Ba (arXiv 1412.6980), with their constants
// 0.9, 0.999 and 1e-8, after the gradient's norm is cut to MaxNorm.
type Adam struct {
	LearningRate float64
	MaxNorm      float64

	first, second           []float64 // moments, made at the first step
	firstPower, secondPower float64   // 0.9 and 0.999 to the power of the steps
}

// Update changes p's parameters by one step along grad, sets grad to zero and
// returns the norm that the gradient had before it was cut. If that is not finite,
// nothing but grad is changed: a caller who does not want to go on has to check. Nor is
// anything changed by a gradient of 0: moments would go on moving the parameters without any
// reason.
func (a *Adam) Update(p, grad *Policy) float64 {
	const beta1, beta2, epsilon = 0.9, 0.999, 1e-8
	var sum float64
	for _, g := range grad.Parameters {
		sum += float64(float64(g) * float64(g))
	}
	norm := math.Sqrt(sum)
	if norm == 0 || math.IsNaN(norm) || math.IsInf(norm, 0) {
		clear(grad.Parameters)
		return norm
	}

	if a.first == nil {
		a.first = make([]float64, len(p.Parameters))
		a.second = make([]float64, len(p.Parameters))
		a.firstPower, a.secondPower = 1, 1
	}
	a.firstPower = float64(a.firstPower * beta1)
	a.secondPower = float64(a.secondPower * beta2)
	scale := 1.0
	if norm > a.MaxNorm {
		scale = a.MaxNorm / norm
	}
	rate := a.LearningRate / (1 - a.firstPower)
	correction := 1 / (1 - a.secondPower)
	first, second, parameters := a.first, a.second[:len(a.first)], p.Parameters[:len(a.first)]
	for i, g := range grad.Parameters[:len(first)] {
		g := float64(g) * scale
		first[i] = float64(beta1*first[i]) + float64((1-beta1)*g)
		second[i] = float64(beta2*second[i]) + float64((1-beta2)*float64(g*g))
		root := math.Sqrt(second[i] * correction)
		parameters[i] = float32(float64(parameters[i]) - float64(rate*first[i]/(root+epsilon)))
	}
	clear(grad.Parameters)
	return norm
}

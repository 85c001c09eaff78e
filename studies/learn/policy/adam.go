package policy

import (
	"fmt"
	"math"
)

// Adam is the optimizer of Kingma and Ba (arXiv 1412.6980), with their constants
// 0.9, 0.999 and 1e-8, after the gradient's norm is cut to 1.
type Adam struct {
	first, second           []float64 // moments, made at the first step
	firstPower, secondPower float64   // 0.9 and 0.999 to the power of the steps
}

// Update changes p's parameters by one step along grad, and sets grad to zero. A gradient of 0
// changes nothing: moments would go on moving the parameters without any reason. Update panics
// if the gradient is not finite.
func (a *Adam) Update(p, grad *Policy, rate float64) {
	const beta1, beta2, epsilon = 0.9, 0.999, 1e-8
	var sum float64
	for _, g := range grad.Parameters {
		sum += float64(float64(g) * float64(g))
	}
	norm := math.Sqrt(sum)
	if norm == 0 {
		return
	}
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		panic(fmt.Sprintf("policy: the gradient's norm is %v", norm))
	}

	if a.first == nil {
		a.first = make([]float64, len(p.Parameters))
		a.second = make([]float64, len(p.Parameters))
		a.firstPower, a.secondPower = 1, 1
	}
	a.firstPower = float64(a.firstPower * beta1)
	a.secondPower = float64(a.secondPower * beta2)
	scale := 1 / max(norm, 1)
	rate /= 1 - a.firstPower
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
}

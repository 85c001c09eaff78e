package study

import (
	"github.com/seed621a2839/reweight/studies/learn/train"
)

// Rates is the study of plan-rates.md: the cells and schemes of a map at more rates.
type Rates struct {
	Map
	Upwards []float64 // rates above those of the map, or between them
	Seeds   []int
}

// TheRates is the study of plan-rates.md, and SmokeRates a part of it.
var (
	TheRates   = Rates{TheMap, []float64{6e-3, 2e-2, 3e-2}, []int{101, 102, 103, 104, 105, 106}}
	SmokeRates = Rates{SmokeMap, []float64{2e-2}, []int{101, 102}}
)

// Runs returns all, those at the rates that the map lacks first.
func (r Rates) Runs() []train.Run {
	at := func(rates []float64) []train.Run {
		return r.Map.runs(func(train.Run) []float64 { return rates }, r.Seeds)
	}
	return append(at(r.Upwards), at(r.Map.Rates)...)
}

//go:build !race

package reweight

const raceEnabled = false

func raceRead[E any]([]E)  {}
func raceWrite[E any]([]E) {}

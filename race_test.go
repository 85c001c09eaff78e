//go:build race

package reweight

// raceEnabled: the race detector's own goroutine bookkeeping allocates.
const raceEnabled = true

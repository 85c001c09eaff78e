//go:build !race

package reweight

const raceEnabled = false

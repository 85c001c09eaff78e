package reference

// Floats returns the elements of x as float64, for callers whose arrays are float32.
func Floats(x []float32) []float64 {
	wide := make([]float64, len(x))
	for i, v := range x {
		wide[i] = float64(v)
	}
	return wide
}

// Roles returns the roles of another type, with the same numbers, as those of this
// package.
func Roles[R ~uint8](role []R) []Role {
	same := make([]Role, len(role))
	for t, r := range role {
		same[t] = Role(r)
	}
	return same
}

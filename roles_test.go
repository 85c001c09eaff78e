package reweight

import "testing"

// TestCheckRoles puts every kind of byte at every place of arrays around the size
// that is checked at once.
func TestCheckRoles(t *testing.T) {
	for n := range 100 {
		role := make([]Role, n)
		for at := range n {
			for v := range 256 {
				for i := range role {
					role[i] = Role(i % 3)
				}
				role[at] = Role(v)
				err := checkRoles("role", role)
				if input, ok := err.(*InputError); (v > 2) != ok || ok && input.Index != at {
					t.Fatalf("%d roles, %d at %d: %v", n, v, at, err)
				}
			}
		}
	}
}

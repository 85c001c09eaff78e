package reweight

import (
	"encoding/binary"
	"unsafe"
)

// A Role says what a token is to the loss.
type Role uint8

const (
	RoleMasked    Role = iota // prompt or observation: no part in the loss
	RoleReasoning             // response token outside the action body
	RoleAction                // strictly between <answer> and </answer>
)

// A RoleSet is a set of roles.
type RoleSet uint8

// Responses is the set of roles that take part in the loss.
const Responses RoleSet = 1<<RoleReasoning | 1<<RoleAction

// Roles returns the set of the given roles.
func Roles(roles ...Role) RoleSet {
	var set RoleSet
	for _, r := range roles {
		set |= 1 << r
	}
	return set
}

// Has reports whether r is in the set.
func (set RoleSet) Has(r Role) bool { return set>>r&1 != 0 }

// checkRoles wants every role to be one of the three.
func checkRoles(arg string, role []Role) error {
	bytes := unsafe.Slice((*byte)(unsafe.SliceData(role)), len(role))
	t := 0
	for ; t+8 <= len(bytes); t += 8 { // eight at a time: no bit above the lowest two, and not both
		if v := binary.LittleEndian.Uint64(bytes[t:]); v&0xfcfcfcfcfcfcfcfc|v&(v>>1)&0x0101010101010101 != 0 {
			break
		}
	}
	for ; t < len(role); t++ {
		if r := role[t]; r > RoleAction {
			return badElement(arg, t, "is %d, want 0, 1 or 2", r)
		}
	}
	return nil
}

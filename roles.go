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
	rest := unsafe.Slice((*byte)(unsafe.SliceData(role)), len(role))
	for len(rest) >= 32 {
		word := binary.LittleEndian.Uint64
		if notRoles(word(rest))|notRoles(word(rest[8:]))|notRoles(word(rest[16:]))|notRoles(word(rest[24:])) != 0 {
			break
		}
		rest = rest[32:]
	}
	for t := len(role) - len(rest); t < len(role); t++ {
		if r := role[t]; r > RoleAction {
			return badElement(arg, t, "is %d, want 0, 1 or 2", r)
		}
	}
	return nil
}

// notRoles returns 0 if each of the eight bytes is 0, 1 or 2: no bit above the
// lowest two, and not both of these.
func notRoles(eight uint64) uint64 {
	return eight&0xfcfcfcfcfcfcfcfc | eight&(eight>>1)&0x0101010101010101
}

package reweight

import (
	"encoding/binary"
	"unsafe"

	"github.com/seed621a2839/reweight/internal/problem"
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
	for ; len(rest) >= 32; rest = rest[32:] {
		a, b := binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])
		c, d := binary.LittleEndian.Uint64(rest[16:]), binary.LittleEndian.Uint64(rest[24:])
		// Of each byte no bit above the lowest two, and not both of these.
		high := (a | b | c | d) & 0xfcfcfcfcfcfcfcfc
		both := (a&(a>>1) | b&(b>>1) | c&(c>>1) | d&(d>>1)) & 0x0101010101010101
		if high|both != 0 {
			break
		}
	}
	for t := len(role) - len(rest); t < len(role); t++ {
		if r := role[t]; r > RoleAction {
			return badElement(arg, t, problem.Role, uint8(r))
		}
	}
	return nil
}

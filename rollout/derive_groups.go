package rollout

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"slices"
)

// promptKey returns a short text that is equal for equal prompts, on every machine, and
// empty if r has none. The prompt is what the source says it is, or else the ids of the
// tokens before the first response token. The ids of a prompt have one key, whichever
// format they come from. Different prompts have different keys: these
// are made of 128 bits of a SHA-256.
func promptKey(r *record) string {
	h := sha256.New()
	if r.prompt != "" {
		h.Write([]byte{'t'}) // no text has the key of a sequence of ids
		io.WriteString(h, r.prompt)
		return keyOf(h)
	}
	h.Write([]byte{'i'})
	ids := r.promptIDs
	if ids == nil {
		n := slices.IndexFunc(r.Role, isResponse)
		if n < 0 {
			n = len(r.Role)
		}
		ids = r.TokenIDs[:min(n, len(r.TokenIDs))]
	}
	if len(ids) == 0 {
		return ""
	}
	for _, id := range ids {
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(id)))
	}
	return keyOf(h)
}

func keyOf(h hash.Hash) string { return "prompt " + hex.EncodeToString(h.Sum(nil)[:16]) }

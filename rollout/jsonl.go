package rollout

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// Our own JSONL has one trajectory on each line, as an object with these fields:
//
//	the Name of an array of tokens or spans in reweight.Batch.Arrays: a list of numbers
//	mask                              in place of role: which tokens are the response's
//	texts                             of the tokens: a list of strings
//	text_bytes                        of the texts that are not UTF-8: a list of null and lists of numbers
//	reward, group_id, trajectory_id   a number, and ids that are texts or numbers
//
// role or mask must be there. A field that is null is absent.

// WriteJSONL writes a trajectory as a line of JSON, which Open reads: each array of
// tokens or spans is a list under its Name in reweight.Batch.Arrays, and reward, group_id
// and texts belong to the trajectory. group_id is Group, or the number in GroupIDs if
// there is no Group or it was made by counting. Every number is read back as the same
// float32, and a NaN as a NaN. Texts that are not UTF-8, as of a token that ends within a
// character, have their bytes in a list beside texts. A trajectory with logits is an error:
// they need a file of safetensors.
func WriteJSONL(w io.Writer, t *Trajectory) error {
	b := t.Batch
	if n := b.Trajectories(); n != 1 {
		return fmt.Errorf("seq_offsets is of %d trajectories, want 1", n)
	}
	if err := validate(&b); err != nil {
		return InFile(err)
	}
	if n := len(t.Texts); n != 0 && n != b.Tokens() {
		return fmt.Errorf("texts has %d elements, want %d, one per token", n, b.Tokens())
	}
	group := t.Group
	if t.LocalGroup { // in the other formats it has only its number too
		group = ""
	}
	line := []byte{'{'}
	for _, a := range b.Arrays() {
		if a.Len() == 0 && a.Field != "Role" {
			continue
		}
		switch data := a.Data.(type) {
		case *[]reweight.Role:
			line = appendList(line, a.Name, *data, func(line []byte, role reweight.Role) []byte {
				return strconv.AppendInt(line, int64(role), 10)
			})
		case *[]int32:
			if a.Per != reweight.PerTrajectory {
				line = appendList(line, a.Name, *data, func(line []byte, i int32) []byte {
					return strconv.AppendInt(line, int64(i), 10)
				})
			} else if group == "" {
				line = strconv.AppendInt(appendName(line, "group_id"), int64((*data)[0]), 10)
			}
		case *[]float32:
			if a.Per != reweight.PerTrajectory {
				line = appendList(line, a.Name, *data, jsonscan.AppendFloat)
			} else {
				line = jsonscan.AppendFloat(appendName(line, "reward"), (*data)[0])
			}
		case *reweight.Logits:
			return fmt.Errorf("%s cannot be written as JSON: use safetensors", a.Name)
		}
	}
	if group != "" {
		if !utf8.ValidString(group) {
			return fmt.Errorf("the group %s is not UTF-8", quote(group))
		}
		line = jsonscan.AppendString(appendName(line, "group_id"), group)
	}
	if len(t.Texts) != 0 {
		line = appendList(line, "texts", t.Texts, jsonscan.AppendString)
	}
	if slices.ContainsFunc(t.Texts, func(text string) bool { return !utf8.ValidString(text) }) {
		line = appendList(line, "text_bytes", t.Texts, appendBytes)
	}
	_, err := w.Write(append(line, '}', '\n'))
	return err
}

// appendName appends the name of a field to an object that has begun.
func appendName(line []byte, name string) []byte {
	if line[len(line)-1] != '{' {
		line = append(line, ',')
	}
	line = append(line, '"')
	line = append(line, name...) // no name of ours needs an escape sequence
	return append(line, '"', ':')
}

// appendBytes appends the bytes of a text, or null if it is UTF-8.
func appendBytes(line []byte, text string) []byte {
	if utf8.ValidString(text) {
		return append(line, "null"...)
	}
	line = append(line, '[')
	for i := range len(text) {
		if i > 0 {
			line = append(line, ',')
		}
		line = strconv.AppendInt(line, int64(text[i]), 10)
	}
	return append(line, ']')
}

func appendList[E any](line []byte, name string, list []E, element func([]byte, E) []byte) []byte {
	line = append(appendName(line, name), '[')
	for i, e := range list {
		if i > 0 {
			line = append(line, ',')
		}
		line = element(line, e)
	}
	return append(line, ']')
}

func isJSONL(f fields) bool { return f["role"] || f["mask"] }

// parseJSONL reads a line of our own JSONL.
func parseJSONL(s *jsonscan.Scanner, line int) ([]*record, error) {
	r := &record{line: line}
	var common added
	var offsets []int32
	var spelt [][]byte
	arrays := r.Arrays()
	err := s.Object(func(name []byte) error {
		if known, err := common.read(s, name); known {
			return err
		}
		return ifGiven(s, func() (err error) {
			switch string(name) {
			case "mask":
				r.mask, err = s.Bools()
				return err
			case "texts":
				r.texts = nil // as another array without elements, an empty list is none
				return s.Array(func(int) error {
					text, err := s.String()
					r.texts = append(r.texts, text)
					return err
				})
			case "text_bytes":
				return s.Array(func(int) error {
					bytes, err := readBytes(s)
					spelt = append(spelt, bytes)
					return err
				})
			case "credited_advantages": // of a trainer, after the credit, which nothing reads
				return nil
			case "seq_offsets":
				if offsets, err = s.Int32s(); err == nil && len(offsets) != 2 {
					err = s.Errorf("has %d elements, want 2, for the one trajectory of a line", len(offsets))
				}
				return err
			}
			i := slices.IndexFunc(arrays[:], func(a reweight.Array) bool { return a.Name == string(name) })
			if i < 0 {
				r.dropped, r.unknown = append(r.dropped, string(name)), true
				return nil
			}
			switch data := arrays[i].Data.(type) {
			case *[]reweight.Role:
				*data, err = readRoles(s)
			case *[]int32:
				if arrays[i].Per == reweight.PerTrajectory {
					return s.Errorf("is of many trajectories: want group_id, of the one of a line")
				}
				*data, err = s.Int32s()
			case *[]float32:
				*data, err = s.Floats()
			case *reweight.Logits:
				err = s.Errorf("cannot be read from JSON: use safetensors")
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if T := len(r.Role); offsets != nil && r.Role != nil && (offsets[0] != 0 || int(offsets[1]) != T) {
		return nil, fmt.Errorf("seq_offsets is %d, want [0 %d], the one trajectory of a line", offsets, T)
	}
	if len(spelt) != 0 && len(spelt) != len(r.texts) {
		return nil, fmt.Errorf("text_bytes has %d elements, want %d, one for each of texts", len(spelt), len(r.texts))
	}
	for t, bytes := range spelt {
		if bytes != nil {
			r.texts[t] = string(bytes)
		}
	}
	if len(r.mask) != 0 && len(r.Role) != 0 {
		same := func(role reweight.Role, is bool) bool { return isResponse(role) == is }
		if !slices.EqualFunc(r.Role, r.mask, same) {
			return nil, errors.New("role and mask say different tokens to be the response's: want one of them")
		}
	}
	records := []*record{r}
	return records, common.give(records)
}

// readRoles reads an array of roles.
func readRoles(s *jsonscan.Scanner) ([]reweight.Role, error) {
	numbers, err := s.Int32s()
	if err != nil {
		return nil, err
	}
	roles := make([]reweight.Role, len(numbers))
	for t, number := range numbers {
		if number < 0 || number > int32(reweight.RoleAction) {
			return nil, &jsonscan.Error{Path: fmt.Sprintf("[%d]", t),
				Problem: fmt.Sprintf("is %d, want a role: 0, 1 or 2", number)}
		}
		roles[t] = reweight.Role(number)
	}
	return roles, nil
}

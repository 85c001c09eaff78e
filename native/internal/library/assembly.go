package library

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// known are the relocations of each CPU that are written as they are.
var known = map[string][]string{
	"amd64": {"R_X86_64_PC32"},
	"arm64": {"R_AARCH64_ADR_PREL_PG_HI21", "R_AARCH64_ADD_ABS_LO12_NC"},
}

// writeAssembly writes the functions, and the constants that they use, in GNU assembler:
// as bytes, so that they are what Go's assembler made. Their names have rw_ before them
// and are hidden. Constants that are equal and have the same name are one.
func writeAssembly(functions []*function, arch string) (string, error) {
	var out, data strings.Builder
	labels := map[string]string{} // of constants, by their names and contents
	label := func(c *constant) string {
		key := c.name + "\x00" + string(c.data)
		if labels[key] == "" {
			labels[key] = fmt.Sprintf("rw_constant%d_%s", len(labels), c.name)
			fmt.Fprintf(&data, "\n\t.p2align 6\n\t.type %s, %%object\n%[1]s:\n", labels[key])
			writeBytes(&data, c.data)
			fmt.Fprintf(&data, "\t.size %s, . - %[1]s\n", labels[key])
		}
		return labels[key]
	}
	out.WriteString("\t.text\n")
	for _, f := range functions {
		name := "rw_" + f.name
		fmt.Fprintf(&out, "\n\t.p2align 6\n\t.globl %s\n\t.hidden %[1]s\n\t.type %[1]s, %%function\n%[1]s:\n", name)
		if !f.framed {
			out.WriteString("\t.cfi_startproc\n") // what holds at a call holds throughout
		}
		at := 0
		for _, r := range f.relocs {
			switch {
			case !slices.Contains(known[arch], r.kind):
				return "", fmt.Errorf("%s has a relocation at %d that is not known on %s: %s", f.name, r.offset,
					arch, r.kind)
			case r.offset < at || r.offset+4 > len(f.code):
				return "", fmt.Errorf("%s has a relocation at %d, not between %d and %d", f.name, r.offset, at,
					len(f.code)-4)
			case r.addend < -8 || r.addend >= int64(len(r.constant.data)):
				// It may be negative: amd64 counts from the field, the CPU from the instruction's end.
				return "", fmt.Errorf("%s uses what is %d bytes after the beginning of %s, which has %d", f.name,
					r.addend, r.constant.name, len(r.constant.data))
			}
			writeCode(&out, f.code[at:r.offset], arch)
			fmt.Fprintf(&out, "\t.reloc ., %s, %s%+d\n", r.kind, label(r.constant), r.addend)
			at = r.offset + 4
			writeCode(&out, f.code[r.offset:at], arch)
		}
		writeCode(&out, f.code[at:], arch)
		if !f.framed {
			out.WriteString("\t.cfi_endproc\n")
		}
		fmt.Fprintf(&out, "\t.size %s, . - %[1]s\n", name)
	}
	out.WriteString("\n\t.section .rodata\n")
	out.WriteString(data.String())
	out.WriteString("\n\t.section .note.GNU-stack, \"\", %progbits\n")
	return out.String(), nil
}

// writeCode writes instructions; those of arm64 as such, so that they can be disassembled.
func writeCode(out *strings.Builder, code []byte, arch string) {
	if arch == "amd64" {
		writeBytes(out, code)
		return
	}
	for ; len(code) > 0; code = code[4:] {
		fmt.Fprintf(out, "\t.inst %#x\n", binary.LittleEndian.Uint32(code))
	}
}

func writeBytes(out *strings.Builder, data []byte) {
	for line := range slices.Chunk(data, 16) {
		separator := "\t.byte "
		for _, b := range line {
			fmt.Fprintf(out, "%s%#02x", separator, b)
			separator = ", "
		}
		out.WriteByte('\n')
	}
}

package library

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// writeAssembly writes the functions, and the constants that they use, in GNU assembler:
// as bytes, so that they are what Go's assembler made. Their names have rw_ before them
// and are hidden. Constants that are equal and have the same name are one.
func writeAssembly(files []*file, arch string) (string, error) {
	var out, data strings.Builder
	labels := map[string]string{} // of constants, by their names and contents
	label := func(c *symbol) string {
		key := c.name + "\x00" + string(c.code)
		if labels[key] == "" {
			labels[key] = fmt.Sprintf("rw_constant%d_%s", len(labels), c.name)
			fmt.Fprintf(&data, "\n\t.p2align 6\n\t.type %s, %%object\n%[1]s:\n", labels[key])
			writeBytes(&data, c.code)
			fmt.Fprintf(&data, "\t.size %s, . - %[1]s\n", labels[key])
		}
		return labels[key]
	}
	out.WriteString("\t.text\n")
	for _, f := range files {
		for _, s := range f.functions {
			name := "rw_" + s.name
			fmt.Fprintf(&out, "\n\t.p2align 6\n\t.globl %s\n\t.hidden %[1]s\n\t.type %[1]s, %%function\n%[1]s:\n", name)
			if !s.framed {
				out.WriteString("\t.cfi_startproc\n") // what holds at a call holds throughout
			}
			at := 0
			for _, r := range s.relocs {
				c := f.constants[r.target]
				if r.addend < -int64(r.size) || r.addend >= int64(c.size) {
					return "", fmt.Errorf("%s uses what is %d bytes after the beginning of %s, which has %d", s.name, r.addend, c.name, c.size)
				}
				writeCode(&out, s.code[at:r.offset], arch)
				field, err := relocate(r, s.code[r.offset:r.offset+r.size], label(c), arch)
				if err != nil {
					return "", fmt.Errorf("%s, relocation at %d: %w", s.name, r.offset, err)
				}
				out.WriteString(field)
				at = r.offset + r.size
			}
			writeCode(&out, s.code[at:], arch)
			if !s.framed {
				out.WriteString("\t.cfi_endproc\n")
			}
			fmt.Fprintf(&out, "\t.size %s, . - %[1]s\n", name)
		}
	}
	out.WriteString("\n\t.section .rodata\n")
	out.WriteString(data.String())
	out.WriteString("\n\t.section .note.GNU-stack, \"\", %progbits\n")
	return out.String(), nil
}

// relocate returns the bytes of a field with the linker's relocation for the address of
// the constant.
func relocate(r reloc, field []byte, label, arch string) (string, error) {
	switch {
	case arch == "amd64" && r.kind == "R_PCREL" && r.size == 4:
		// Go counts from the end of the field, ELF from its beginning.
		if slices.ContainsFunc(field, func(b byte) bool { return b != 0 }) {
			return "", fmt.Errorf("the field is % x, want zeros", field)
		}
		return fmt.Sprintf("\t.reloc ., R_X86_64_PC32, %s%+d\n\t.long 0\n", label, r.addend-4), nil
	case arch == "arm64" && r.kind == "R_ADDRARM64" && r.size == 8:
		page, low := binary.LittleEndian.Uint32(field), binary.LittleEndian.Uint32(field[4:])
		if page&^31 != 0x90000000 || low&^(31|31<<5) != 0x91000000 {
			return "", fmt.Errorf("the instructions are %#08x and %#08x, want ADRP and ADD without offsets", page, low)
		}
		target := fmt.Sprintf("%s%+d", label, r.addend)
		return fmt.Sprintf("\t.reloc ., R_AARCH64_ADR_PREL_PG_HI21, %s\n\t.inst %#x\n", target, page) +
			fmt.Sprintf("\t.reloc ., R_AARCH64_ADD_ABS_LO12_NC, %s\n\t.inst %#x\n", target, low), nil
	}
	return "", fmt.Errorf("%s of %d bytes is not known on %s", r.kind, r.size, arch)
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

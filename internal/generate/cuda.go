package main

import (
	"fmt"
	"strings"

	"github.com/seed621a2839/reweight/internal/problem"
)

// argumentNames are the arguments in upper case, as C and CUDA have them, by their numbers.
// The parameter that has a number of its own, beside the field of that name, is BARE.
func argumentNames() []string {
	var names []string
	taken := map[string]bool{}
	for _, a := range problem.Arguments {
		name := strings.ToUpper(a.C)
		if taken[a.C] {
			name = "BARE_" + name
		}
		taken[a.C] = true
		names = append(names, name)
	}
	return names
}

// problemsOfDevice returns problems.cuh, which the kernels of the GPU include.
func problemsOfDevice(*source) (string, error) {
	var out strings.Builder
	out.WriteString("// The problems and arguments that a Status names: `go generate ./...` writes this file.\n#pragma once\n\nenum {\n")
	for i, p := range problem.Coded {
		fmt.Fprintf(&out, "\tPROBLEM_%s = %d,\n", p.Name, i+1)
	}
	out.WriteString("};\n\nenum {\n")
	for i, name := range argumentNames() {
		fmt.Fprintf(&out, "\tARG_%s = %d,\n", name, i+1)
	}
	out.WriteString("};\n")
	return out.String(), nil
}

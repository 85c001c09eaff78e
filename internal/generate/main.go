// Command generate writes what is made from the code of this module: `go generate ./...` runs
// it in the folder of the module. TestNothingIsStale says which file it would change.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed621a2839/reweight/native"
)

// A generated file is named as from the folder of the module. make returns its text.
type generated struct {
	name string
	make func(*source) (string, error)
}

// A source is what the code of the module does not say by itself: its folder, for the comments in
// it, and the present text of the file, of which a part may be written by hand.
type source struct {
	module, old string
}

var files = []generated{
	{"doc.go", docGo},
	{"docs/schemes.md", tables},
	{"README.md", tables},
	{"native/reweight.h", header},
	{"native/src/policies.h", policyTable},
	{"gpu/internal/device/problems.cuh", problemsOfDevice},
	{"python/reweight/_generated.py", pythonModule},
	{"python/reweight/_policies.py", pythonPolicies},
	{"python/reweight/_catalogue.py", pythonCatalogue},
	{"testdata/problems.json", examples},
}

func main() {
	if native.Structs() == nil {
		fmt.Fprintln(os.Stderr, "generate: the structs of reweight.h need cgo")
		os.Exit(1)
	}
	for _, f := range files {
		if err := f.write("."); err != nil {
			fmt.Fprintf(os.Stderr, "generate: %s: %v\n", f.name, err)
			os.Exit(1)
		}
	}
}

// texts returns the present text of the file and the one that it should have.
func (f generated) texts(module string) (old, text string, err error) {
	raw, err := os.ReadFile(filepath.Join(module, f.name))
	if err != nil && !os.IsNotExist(err) {
		return "", "", err
	}
	text, err = f.make(&source{module, string(raw)})
	return string(raw), text, err
}

// write writes the file, unless it is as it should be.
func (f generated) write(module string) error {
	old, text, err := f.texts(module)
	if err != nil || text == old {
		return err
	}
	fmt.Println(f.name)
	return os.WriteFile(filepath.Join(module, f.name), []byte(text), 0o666)
}

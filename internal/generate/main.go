// Command generate writes what is made from the code of this module: `go generate ./...` runs
// it in the folder of the module. TestNothingIsStale says which file it would change.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// A generated file is named as from the folder of the module. make returns its text; old is
// the present one, of which a part may be written by hand.
type generated struct {
	name string
	make func(old string) (string, error)
}

var files = []generated{
	{"doc.go", docGo},
}

func main() {
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
	text, err = f.make(string(raw))
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

// Package device holds the code that runs on the GPU: CUDA C in the *.cu and *.cuh
// files, and the PTX that build.sh makes of it, which drivers translate for the GPU
// they find.
package device

import (
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

//go:embed *.ptx.gz
var files embed.FS

// PTX returns the text of every module by its name: "token_stats".
func PTX() (map[string]string, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	modules := make(map[string]string, len(entries))
	for _, e := range entries {
		text, err := read(files, e.Name())
		if err != nil {
			return nil, fmt.Errorf("device: %s: %w", e.Name(), err)
		}
		modules[strings.TrimSuffix(e.Name(), ".ptx.gz")] = text
	}
	return modules, nil
}

// read reads the text of a *.ptx.gz.
func read(folder fs.FS, name string) (string, error) {
	f, err := folder.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(z)
	return string(text), err
}

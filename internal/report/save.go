package report

import (
	"io"
	"os"
	"path/filepath"

	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/cli"
)

// pictureName is the file of the picture that Save writes, which is the same after
// every run.
const pictureName = "rollout.svg"

// fileNames are the files that Save writes, for programs and for people. A run
// that ends early does not take the place of one that did not.
func fileNames(partial bool) (results, page string) {
	if partial {
		return "results.partial.json", "report.partial.html"
	}
	return "results.json", "report.html"
}

// CheckDir makes the directory if it is not there, and returns an error if Save
// could not write into it.
func CheckDir(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, partial := range [...]bool{false, true} {
		results, page := fileNames(partial)
		for _, name := range [...]string{results, page, pictureName} {
			if err := atomicfile.Check(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Save writes the report for people and for Read into the directory.
func (r Report) Save(dir string) error {
	example, err := Example()
	if err != nil {
		return err
	}
	results, page := fileNames(r.Partial)
	err = atomicfile.Write(filepath.Join(dir, results), r.WriteJSON)
	err = cli.Also(err, atomicfile.Write(filepath.Join(dir, page), func(w io.Writer) error { return r.WriteHTML(w, example) }))
	return cli.Also(err, atomicfile.Write(filepath.Join(dir, pictureName), func(w io.Writer) error { return WriteSVG(w, example.Trajectories[0]) }))
}

package rollout

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// FuzzStream reads streams of any content, as it is and compressed: no panic, errors of
// one short line that begin with the name, and valid trajectories.
func FuzzStream(f *testing.F) {
	small := must.Get(os.ReadFile(exampleFiles[0]))
	var good bytes.Buffer
	must.Do(encode(&good, goodTensors(), nil))
	for _, data := range [][]byte{nil, small[:2000], good.Bytes(), gzipped(f, good.Bytes()), zstandard(f, good.Bytes()),
		[]byte(`{"a": [{"b": 1}]}`), []byte("[]"), []byte("\ufeff{")} {
		for i := range compressions {
			f.Add(uint8(i), data)
		}
	}
	f.Fuzz(func(t *testing.T, compression uint8, data []byte) {
		data = compressions[int(compression)%len(compressions)].compress(t, data)
		if err := readAll(t, data); err != nil {
			if s := err.Error(); !strings.HasPrefix(s, "name:") || strings.Contains(s, "\n") || len(s) > 1000 {
				t.Errorf("error is not one short line: %q", s)
			}
		}
	})
}

// readAll reads the trajectories of a file of that content, which is called name.
func readAll(t *testing.T, data []byte) error {
	s, err := streamOf(data)
	if err != nil {
		return inContext("name", err)
	}
	source := &Source{c: newCompleter(Options{}, false, nil)}
	defer source.Close()
	if source.input, err = source.c.start(s, "name"); err != nil {
		return err
	}
	for {
		next, err := source.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := validate(&next.Batch); err != nil {
			t.Error(err)
		}
	}
}

package rollout

import (
	"io"
	"reflect"
	"testing"
)

// One safetensors file, trajectory by trajectory and as one batch, is what File.Batch
// returns.
func TestSafetensorsSource(t *testing.T) {
	for _, path := range []string{"../testdata/frozenlake-small.safetensors", "../testdata/frozenlake.safetensors"} {
		f, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		want, err := f.Batch()
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		got, err := s.Batch()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the batch differs from that of OpenFile", path)
		}
		s, err = Open(path)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for {
			tr, err := s.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			n++
			if err := tr.Validate(); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%d %+v", n, s.Report())
	}
}

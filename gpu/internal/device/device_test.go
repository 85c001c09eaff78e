package device

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestBuild: the PTX here is what build.sh makes of the sources here, byte for byte.
func TestBuild(t *testing.T) {
	if _, err := exec.LookPath("clang-14"); err != nil {
		t.Skip("no clang-14 here: the PTX is not rebuilt and compared")
	}
	dir := t.TempDir()
	if out, err := exec.Command("./build.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, out)
	}
	built := must.Get(filepath.Glob(filepath.Join(dir, "*.ptx.gz")))
	modules := must.Get(PTX())
	for _, path := range built {
		name := strings.TrimSuffix(filepath.Base(path), ".ptx.gz")
		if modules[name] != must.Get(read(os.DirFS(dir), name+".ptx.gz")) {
			t.Errorf("%s.ptx.gz is not what build.sh makes of %s.cu: run it, and commit what it makes", name, name)
		}
		delete(modules, name)
	}
	for name := range modules {
		t.Errorf("%s.ptx.gz has no source %s.cu", name, name)
	}
}

// TestPTX: every module is for the GPUs and drivers that the documentation promises,
// and rounds to nearest everywhere.
func TestPTX(t *testing.T) {
	modules := must.Get(PTX())
	for name, text := range modules {
		if !strings.Contains(text, ".version 7.0\n.target sm_80\n.address_size 64\n") {
			t.Errorf("%s: not PTX 7.0 for sm_80 with 64-bit addresses", name)
		}
		for _, word := range []string{".ftz", ".approx", ".rz.f", ".rm.f", ".rp.f"} {
			if strings.Contains(text, word) {
				t.Errorf("%s: has %s", name, word)
			}
		}
	}
}

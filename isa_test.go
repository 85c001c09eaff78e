package reweight

import (
	"slices"
	"strings"
	"testing"
)

func TestNarrow(t *testing.T) {
	all, arm := []ISA{Portable, AVX2, AVX512}, []ISA{Portable, NEON}
	for _, c := range []struct {
		name string
		all  []ISA
		want []ISA
		err  string
	}{
		{"", all, all, ""},
		{"portable", all, all[:1], ""},
		{"avx2", all, all[:2], ""},
		{"avx512", all, all, ""},
		{"avx512", all[:2], all[:2], `is "avx512", want one of [portable avx2]`},
		{"sse", all, all, `is "sse", want one of [portable avx2 avx512]`},
		{"auto", all, all, `is "auto", want`},
		{"AVX2", all, all, `is "AVX2", want`},
		{"neon", arm, arm, ""},
		{"portable", arm, arm[:1], ""},
		{"avx2", arm, arm, `is "avx2", want one of [portable neon]`},
	} {
		got, err := narrow(c.all, c.name)
		if !slices.Equal(got, c.want) {
			t.Errorf("narrow(%v, %q) = %v, want %v", c.all, c.name, got, c.want)
		}
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("narrow(%v, %q): error %v, want %q", c.all, c.name, err, c.err)
		}
	}
}

// TestISAs names what does not run here.
func TestISAs(t *testing.T) {
	for isa := Portable; int(isa) < len(isaNames); isa++ {
		t.Run(isa.String(), func(t *testing.T) {
			ws := Workspace{ISA: isa}
			err := ws.TokenStats(Stats{LSE: make([]float32, 1)}, Logits{Vocab: 3, F32: []float32{1, 2, 3}}, nil,
				DefaultTokenStats)
			if has := slices.Contains(AvailableISAs(), isa); has != (err == nil) {
				t.Errorf("available: %v, but the call's error is %v", has, err)
			}
			if err != nil {
				t.Skip(err)
			}
		})
	}
}

// TestWrongOverride: the variable's error reaches every call that it concerns.
func TestWrongOverride(t *testing.T) {
	defer func(a []ISA, err error) { available, envErr = a, err }(available, envErr)
	available, envErr = narrow(detect(), "mmx")
	var ws Workspace
	if err := ws.Multiply(nil, nil, nil); err == nil || !strings.Contains(err.Error(), "REWEIGHT_ISA") {
		t.Errorf("error %v, want one that names REWEIGHT_ISA", err)
	}
	ws.ISA = Portable
	if err := ws.Multiply(nil, nil, nil); err != nil {
		t.Errorf("an instruction set asked for by name: %v", err)
	}
}

// TestTrust: each instruction set is right here, a wrong result of any kernel is an error that names it, and the first
// use of an instruction set allocates nothing.
func TestTrust(t *testing.T) {
	var want answers
	want.of(Portable)
	if want.done != len(answerNames) || want.n >= len(want.x) {
		t.Fatalf("%d kernels, %d results", want.done, want.n)
	}
	for _, isa := range available[1:] {
		if err := isa.trust(); err != nil {
			t.Error(err)
		}
		var got answers
		if allocs := testing.AllocsPerRun(1, func() { got = answers{}; got.of(isa) }); allocs != 0 && !raceEnabled {
			t.Errorf("%v: %v allocations", isa, allocs)
		}
		for i, end := range got.ends {
			wrong := got
			wrong.x[end-1]++
			err := wrong.differ(&want, isa)
			if err == nil || !strings.Contains(err.Error(), answerNames[i]+", result ") ||
				!strings.Contains(err.Error(),
					"ISA is "+isa.String()+", which computes other bits than portable on this CPU") {
				t.Errorf("%s: error %v", answerNames[i], err)
			}
		}
	}
}

// BenchmarkTrust is what the first use of an instruction set costs.
func BenchmarkTrust(b *testing.B) {
	for b.Loop() {
		var want, got answers
		want.of(Portable)
		got.of(available[len(available)-1])
		if err := got.differ(&want, Auto); err != nil {
			b.Fatal(err)
		}
	}
}

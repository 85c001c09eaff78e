//go:build cgo && linux

package testlib

// #cgo CFLAGS: -I${SRCDIR}/.. -Wall -Werror
// #cgo LDFLAGS: -ldl
// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/native"
)

// canLoad says whether this build can load libraries.
const canLoad = true

// A Library is a loaded C library. It serves any number of calls at a time.
type Library struct{ functions *C.library }

// load loads the shared library at path. It stays loaded as long as the process lives,
// and does not need its file any more.
func load(path string) (*Library, error) {
	l := &Library{(*C.library)(C.calloc(1, C.sizeof_library))}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if problem := C.library_open(l.functions, name); problem != nil {
		return nil, fmt.Errorf("testlib: %s", C.GoString(problem))
	}
	return l, nil
}

// Version returns what the library says that it is.
func (l *Library) Version() string { return C.GoString(C.call_version(l.functions)) }

// ISAs returns the instruction sets that the library has on this machine, the slowest
// first.
func (l *Library) ISAs() []reweight.ISA {
	var all []reweight.ISA
	for isa := reweight.Portable; isa <= reweight.NEON; isa++ {
		if C.call_has_isa(l.functions, C.int32_t(isa)) != 0 {
			all = append(all, isa)
		}
	}
	return all
}

// BestISA returns what the library takes if it is asked for none.
func (l *Library) BestISA() reweight.ISA { return reweight.ISA(C.call_best_isa(l.functions)) }

// ISAName returns the library's name of an instruction set.
func (l *Library) ISAName(isa reweight.ISA) string {
	return C.GoString(C.call_isa_name(l.functions, C.int32_t(isa)))
}

// Runner returns a runner that has the library use the instruction set, and that many
// threads for rows of logits.
func (l *Library) Runner(isa reweight.ISA, workers int) *Runner {
	return &Runner{functions: l.functions, isa: isa, workers: workers}
}

// A Runner has the methods of *reweight.Workspace: the same arguments, the same bits
// and the same errors, but for the lengths of slices, which the caller sees to: the
// library gets addresses. It serves one call at a time.
//
// Scratch memory has exactly the size that the library asks for and is new in each call,
// so that a sanitizer sees what goes beyond it or is read before it is written.
type Runner struct {
	functions *C.library
	isa       reweight.ISA
	workers   int

	// For tests: how many bytes of scratch memory a call gets less than it should, and
	// whether it gets no address for its error and for a result that it can do without.
	lacking int64
	silent  bool

	// Where the library writes other things than arrays.
	failure   C.reweight_error
	actFocus  C.reweight_actfocus_result
	loss      C.reweight_loss_result
	value     C.reweight_value_loss_result
	moments   C.reweight_moments
	surrogate C.reweight_surrogate_sums

	lossOf        reweight.LossOptions // whose layout is lossOptionsOf
	lossOptionsOf C.reweight_loss_options
}

// untouched is what an error looks like that no call has written.
const untouched = -77

// workspace returns the settings of a call that needs no scratch memory.
func (r *Runner) workspace() C.reweight_workspace {
	r.failure.index = untouched
	return C.reweight_workspace{isa: C.int32_t(r.isa), workers: C.int32_t(r.workers)}
}

// workspaceFor returns those of a call on a batch. The caller frees the scratch memory.
func (r *Runner) workspaceFor(tokens, trajectories, spans int) C.reweight_workspace {
	ws := r.workspace()
	ws.scratch_size = C.call_scratch_size(r.functions, C.int64_t(tokens), C.int64_t(trajectories), C.int64_t(spans))
	ws.scratch_size = max(0, ws.scratch_size-C.int64_t(r.lacking))
	ws.scratch = C.malloc(C.size_t(ws.scratch_size))
	return ws
}

// errorOf returns where a call says what is wrong.
func (r *Runner) errorOf() *C.reweight_error {
	if r.silent {
		return nil
	}
	return &r.failure
}

// errSilent is of a call that says no more.
var errSilent = errors.New("testlib: an argument is wrong")

// result returns the error of a call, with the names that package reweight has for
// arguments. Of a call that takes a batch, inBatch, arrays are fields of it.
func (r *Runner) result(code C.int, inBatch bool) error {
	switch {
	case code == C.REWEIGHT_OK && r.failure.index != untouched:
		return fmt.Errorf("testlib: a call that succeeds has written to its error")
	case code == C.REWEIGHT_OK:
		return nil
	case code == C.REWEIGHT_BAD_INPUT && r.silent:
		return errSilent
	case code != C.REWEIGHT_BAD_INPUT || r.failure.index == untouched:
		return fmt.Errorf("testlib: a call returns %d, with an index of %d", code, r.failure.index)
	}
	report := problem.Report{Code: uint32(r.failure.code), Argument: uint32(r.failure.argument),
		Index: int64(r.failure.index)}
	for i, v := range r.failure.values {
		report.Values[i] = int64(v)
	}
	arg, text, ok := report.Read(native.Names)
	if !ok {
		return fmt.Errorf("testlib: a call reports problem %d of argument %d", report.Code, report.Argument)
	}
	if _, field := reflect.TypeFor[reweight.Batch]().FieldByName(arg.Go); field && !inBatch {
		arg.Go = arg.C
	}
	return &reweight.InputError{Arg: arg.Go, Index: int(report.Index), Problem: text}
}

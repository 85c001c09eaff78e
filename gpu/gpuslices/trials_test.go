package gpuslices

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/test/randomcalls"
)

// draws returns what draws the arguments of a trial.
func draws(seed uint64) *randomcalls.Draws { return randomcalls.New(seed, true) }

// spoiled are the methods whose outputs are NaN on the device, all of them, after an
// error that only the device can see.
var spoiled = []string{"ActFocus", "AEM", "Loss", "GRPO", "GAE", "Whiten"}

// compare runs the trial on both callers and says what differs, also on the device after
// an error.
func compare(tr randomcalls.Trial, seed uint64, r *Runner,
	cpu *reweight.Workspace) (want randomcalls.Outcome, err error) {
	if seed <= 1 {
		leaveNaN(r)
	}
	want = tr.Run(draws(seed), cpu)
	if err := randomcalls.Differ(tr.Run(draws(seed), r), want); err != nil {
		return want, err
	}
	// Those that the host finds are not about an element.
	input, ok := want[0].(*reweight.InputError)
	if !ok || input.Index < 0 || !slices.Contains(spoiled, tr.Method) {
		return want, nil
	}
	result := uintptr(unsafe.Pointer(&r.results))
	for _, a := range r.memory.args {
		if !a.output || address(a.bytes)-result < unsafe.Sizeof(r.results) {
			continue
		}
		b := r.memory.staged(a)
		for i := 0; i < len(b); i += 4 {
			if x := math.Float32frombits(binary.LittleEndian.Uint32(b[i:])); x == x {
				return want, fmt.Errorf("after %q: element %d of an output of %d is %v, want NaN", input, i/4,
					len(b)/4, x)
			}
		}
	}
	return want, nil
}

// mostTokens is the most that a trial has.
const mostTokens = 13000

// leaveNaN makes the workspace large enough for all trials and leaves NaN in its scratch
// memory for the sums of groups, before the first trial of a runner. What a kernel reads
// there beyond its own sums then shows.
func leaveNaN(r *Runner) {
	x := make([]float32, mostTokens)
	role := make([]reweight.Role, mostTokens)
	for i := range x {
		x[i], role[i] = float32(math.NaN()), reweight.RoleAction
	}
	if err := r.ensure(gpu.Size{Tokens: mostTokens, Trajectories: 400, Spans: mostTokens}); err == nil {
		_, err = r.Surrogate(x, x, x, x, nil, role, 1, reweight.DefaultLoss)
	}
}

// Package testgpu gives tests a GPU: a real one where there is one, and elsewhere an
// interpreter of the kernels' PTX, which gives the same bits and is stricter.
package testgpu

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/cuda"
	"github.com/seed621a2839/reweight/gpu/internal/answers"
	"github.com/seed621a2839/reweight/gpu/internal/device"
	"github.com/seed621a2839/reweight/gpu/internal/ptx"
)

// seedVariable is the environment variable that fixes the seed of the interpreter.
const seedVariable = "REWEIGHT_PTX_SEED"

// Supported says whether there can be a device: the structs that a kernel and Go share
// are those of a little-endian machine of 64 bits.
func Supported() bool {
	return strconv.IntSize == 64 && binary.NativeEndian.Uint16([]byte{1, 0}) == 1
}

func needSupport(t testing.TB) {
	t.Helper()
	if !Supported() {
		t.Skip("testgpu: no GPU works with a machine like this one")
	}
}

// realGPU opens the GPU, once. It stays open for as long as the test's process lives,
// which keeps the context of the device: tests that open it again are faster.
var realGPU = sync.OnceValues(func() (*gpu.Device, error) { return cuda.Open(0) })

// Device returns a device for the test, which must give back what it allocates: it is
// closed when the test is over, and then the interpreter tells of what was not.
//
// The interpreter runs threads in an order that a seed chooses, another one for each
// device. A test that fails prints the seed; with REWEIGHT_PTX_SEED it is that one for
// all.
func Device(t testing.TB) *gpu.Device {
	t.Helper()
	needSupport(t)
	dev := openGPU(t)
	t.Cleanup(func() {
		if err := dev.Close(); err != nil && !t.Failed() {
			t.Errorf("testgpu: %v", err)
		}
	})
	return dev
}

func openGPU(t testing.TB) *gpu.Device {
	t.Helper()
	_, err := realGPU()
	if err == nil {
		dev, err := cuda.Open(0)
		if err != nil {
			t.Fatalf("testgpu: %v", err)
		}
		t.Logf("testgpu: runs on %s", dev.Info().Name)
		return dev
	}
	// A GPU that fails must not go unnoticed because the interpreter does not.
	var none *cuda.UnavailableError
	if !errors.As(err, &none) {
		t.Fatalf("testgpu: %v", err)
	}
	seed := rand.Uint64()
	if s := os.Getenv(seedVariable); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("testgpu: %s: %v", seedVariable, err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("testgpu: the interpreter ran with %s=%d", seedVariable, seed)
		}
	})
	return gpu.NewDevice(interpreter(t, seed), nil)
}

// Checked returns the interpreter with its kernels checked as cuda.Open has them checked, right or with one that is
// wrong: span_means.
func Checked(t testing.TB, right bool) *gpu.Device {
	t.Helper()
	needSupport(t)
	kernels, err := device.PTX()
	if err != nil {
		t.Fatalf("testgpu: %v", err)
	}
	if !right {
		before, after, _ := strings.Cut(kernels["spans"], ".entry span_means(")
		kernels["spans"] = before + ".entry span_means(" + strings.Replace(after, "\tadd.rn.f64", "\tsub.rn.f64", 1)
	}
	drv := open(t, kernels, 1)
	return gpu.NewDevice(drv, answers.New(drv).Check)
}

// interpreter returns one that has all kernels.
func interpreter(t testing.TB, seed uint64) *ptx.Device {
	t.Helper()
	kernels, err := device.PTX()
	if err != nil {
		t.Fatalf("testgpu: %v", err)
	}
	return open(t, kernels, seed)
}

func open(t testing.TB, kernels map[string]string, seed uint64) *ptx.Device {
	t.Helper()
	dev, err := ptx.Open(kernels, ptx.Options{Seed: seed})
	if err != nil {
		t.Fatalf("testgpu: %v", err)
	}
	return dev
}

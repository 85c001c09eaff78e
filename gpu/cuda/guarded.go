//go:build linux && !android && (amd64 || arm64) && !nogpu

package cuda

import (
	"cmp"
	"errors"
	"unsafe"

	"github.com/seed621a2839/reweight/gpu/internal/driver"
)

// What the driver's API for virtual memory calls things.
const (
	allocationPinned = 1
	locationDevice   = 1
	accessReadWrite  = 3
	granularityLeast = 0
)

// allocationProperty is a CUmemAllocationProp.
type allocationProperty struct {
	kind     int32
	handles  int32
	location int32
	device   int32
	_        [16]byte // of no use here
}

// accessDescriptor is a CUmemAccessDesc.
type accessDescriptor struct {
	location, device, flags int32
}

// AllocGuarded is driver.Guarded's. It reserves addresses for the memory and for one
// unit of the driver's on each side of it, and maps memory to those between.
func (c *context) AllocGuarded(bytes int) (lo, hi driver.Ptr, free func() error, err error) {
	var unmap func() error
	err = c.do(func() (err error) {
		lo, hi, unmap, err = c.mapGuarded(uintptr(max(bytes, 1)))
		return err
	})
	if err != nil {
		if unmap != nil {
			unmap()
		}
		var failed *CallError
		if errors.As(err, &failed) && failed.Code == notSupported {
			err = errors.ErrUnsupported // some virtual GPUs map no memory
		}
		return 0, 0, nil, err
	}
	return lo, hi, func() error { return c.do(unmap) }, nil
}

// mapGuarded maps the memory. unmap gives it back; it is nil if there is an error.
func (c *context) mapGuarded(bytes uintptr) (lo, hi driver.Ptr, unmap func() error, err error) {
	property := allocationProperty{kind: allocationPinned, location: locationDevice, device: c.device}
	var unit uintptr
	if err := c.call(cuMemGetAllocationGranularity, uintptr(unsafe.Pointer(&unit)), uintptr(unsafe.Pointer(&property)),
		granularityLeast); err != nil {
		return 0, 0, nil, err
	}
	bytes = (bytes + unit - 1) / unit * unit
	reserved := bytes + 2*unit
	var base uintptr
	if err := c.call(cuMemAddressReserve, uintptr(unsafe.Pointer(&base)), reserved, 0, 0, 0); err != nil {
		return 0, 0, nil, err
	}
	start := base + unit
	var memory uintptr
	err = c.call(cuMemCreate, uintptr(unsafe.Pointer(&memory)), bytes, uintptr(unsafe.Pointer(&property)), 0)
	if err != nil {
		c.call(cuMemAddressFree, base, reserved)
		return 0, 0, nil, err
	}
	err = c.call(cuMemMap, start, bytes, 0, memory, 0)
	mapped := err == nil
	// The mapping keeps the memory from here on.
	err = cmp.Or(err, c.call(cuMemRelease, memory))
	unmap = func() error {
		var err error
		if mapped {
			err = c.call(cuMemUnmap, start, bytes)
		}
		return cmp.Or(err, c.call(cuMemAddressFree, base, reserved))
	}
	access := accessDescriptor{locationDevice, c.device, accessReadWrite}
	if err == nil {
		err = c.call(cuMemSetAccess, start, bytes, uintptr(unsafe.Pointer(&access)), 1)
	}
	if err != nil {
		unmap()
		return 0, 0, nil, err
	}
	return driver.Ptr(start), driver.Ptr(start + bytes), unmap, nil
}

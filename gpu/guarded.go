package gpu

import (
	"errors"

	"github.com/seed621a2839/reweight/gpu/internal/driver"
)

// AllocGuarded returns at least so many bytes of device memory, from lo up to but not
// including hi, and what gives them back. Below lo and from hi on nothing is mapped: a
// kernel that touches it fails. It is for checks. The error is errors.ErrUnsupported if
// the device cannot do that.
func (d *Device) AllocGuarded(bytes int) (lo, hi Ptr, free func() error, err error) {
	if g, ok := d.drv.(driver.Guarded); ok {
		return g.AllocGuarded(bytes)
	}
	return 0, 0, nil, errors.ErrUnsupported
}

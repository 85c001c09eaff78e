package rollout

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// mapFile maps the first size > 0 bytes of the file, read-only.
func mapFile(f *os.File, size int) (data []byte, unmap func() error, err error) {
	mapping, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("CreateFileMapping: %w", err)
	}
	defer windows.CloseHandle(mapping) // the view keeps the mapping
	address, err := windows.MapViewOfFile(mapping, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, nil, fmt.Errorf("MapViewOfFile of %d bytes: %w", size, err)
	}
	// The view is outside Go's heap: the address is a pointer that never moves,
	// which a plain conversion cannot tell vet.
	data = unsafe.Slice(*(**byte)(unsafe.Pointer(&address)), size)
	return data, func() error { return windows.UnmapViewOfFile(address) }, nil
}

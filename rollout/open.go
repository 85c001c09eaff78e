package rollout

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"unsafe"

	"github.com/seed621a2839/reweight/internal/printable"
)

// Open maps the file into memory (on systems without a mapping it reads the
// file) and checks its header. Only the header is read: a file larger than
// memory opens at once, and its data comes in as it is used.
//
// Slices that the File hands out alias the mapping. It is read-only, so writing
// to them is a fault that ends the program, and so is any use after Close.
//
// The file must not become shorter while it is open. Reading beyond its new end
// gives zeros up to the end of a page, and after that a fault (SIGBUS on Unix),
// which ends the program too. Open and Batch return an error in its place, and
// Guard does so for code that reads the slices. Replacing the file by renaming
// another over it, as Write does, is safe on Unix. Windows refuses both while the
// file is open.
func Open(path string) (*File, error) {
	prefix := "rollout: " + printable.Text(path)
	osFile, size, err := openRegular(path)
	if err != nil {
		return nil, inContext(prefix, err)
	}
	defer osFile.Close() // a mapping outlives its descriptor
	switch {
	case size < lengthSize: // an empty file cannot be mapped
		return nil, inContext(prefix, errTooShort(size))
	case size > math.MaxInt:
		return nil, fmt.Errorf("%s: %d bytes do not fit the address space", prefix, size)
	}
	data, unmap, err := mapFile(osFile, int(size))
	if err != nil {
		return nil, inContext(prefix, err)
	}
	f := &File{prefix: prefix, data: data, unmap: unmap}
	if err := f.parse(); err != nil {
		unmap() // err says what matters
		return nil, err
	}
	return f, nil
}

// Parse reads a file that is already in memory. Slices that the File hands out
// alias data.
func Parse(data []byte) (*File, error) {
	f := &File{prefix: "rollout", data: data, unmap: func() error { return nil }}
	if err := f.parse(); err != nil {
		return nil, err
	}
	return f, nil
}

// Close unmaps the file; every slice that came from it is then invalid.
// Closing twice is no error.
func (f *File) Close() error {
	if f.closed {
		return nil
	}
	f.closed = true
	return inContext(f.prefix, f.unmap())
}

// openRegular opens a regular file and returns its size. The path is looked at
// before it is opened, because opening a device can have effects, and again
// afterwards, because it can have become another file in between.
func openRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, cause(err)
	}
	if err := checkRegular(info); err != nil {
		return nil, 0, err
	}
	file, err := openNow(path)
	if err != nil {
		return nil, 0, cause(err)
	}
	if info, err = file.Stat(); err == nil {
		err = checkRegular(info)
	}
	if err != nil {
		file.Close()
		return nil, 0, cause(err)
	}
	return file, info.Size(), nil
}

func checkRegular(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	return nil
}

// cause returns what the system said, without the operation and the path.
func cause(err error) error {
	if err, ok := err.(*fs.PathError); ok {
		return err.Err
	}
	return err
}

// Guard calls do, which reads slices of f, and returns its error. If a read
// faults because the file has become shorter since it was opened, or because its
// disk fails, Guard ends do and returns an error that says so. Any other panic,
// and any fault outside the file's memory, passes through.
//
// It holds for the goroutine that calls it alone: a fault in one that do starts
// ends the program. So within do the Workers of a reweight.Workspace must be 1,
// unless the slices that its calls read are copies that do has made. After such an
// error, what do has written is incomplete and f's slices may fault again; only
// Close is left to call. A Workspace that do has used can be used again.
func (f *File) Guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		fault, ok := p.(interface {
			runtime.Error
			Addr() uintptr
		})
		if !ok || f.closed || !within(f.data, fault.Addr()) {
			panic(p)
		}
		err = fmt.Errorf("%s: cannot be read any more: it became shorter while it was open, or its disk fails", f.prefix)
	}()
	return do()
}

// within reports whether the address is one of the bytes of data. Some systems
// round the address of a fault down to its page, where a mapping begins too.
func within(data []byte, address uintptr) bool {
	return address-uintptr(unsafe.Pointer(unsafe.SliceData(data))) < uintptr(len(data))
}

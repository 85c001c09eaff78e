package rollout

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"unsafe"

	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A File is a safetensors file, open for reading. It is safe for concurrent use,
// except that Close must come last.
type File struct {
	prefix   string // of every error: the path, or "rollout" for a file without one
	data     []byte // all of the file
	tensors  []*tensor
	byName   map[string]*tensor
	metadata map[string]string
	unmap    func() error
	closed   bool
}

// OpenFile maps the file into memory (on systems without a mapping it reads the
// file) and checks its header. Only the header is read: a file larger than
// memory opens at once, and the system reads its data when it is used.
//
// Slices that come from the File alias the mapping. The mapping is read-only:
// writing to a slice, and any use of one after Close, is a fault that ends the
// program.
//
// The file must not become shorter while it is open. Beyond its new end, a slice
// reads as zeros up to the end of a page, and after that reading is a fault (SIGBUS
// on Unix), which ends the program as well. OpenFile and Batch return an error in that
// case, and Guard does so for code that reads the slices. To replace the file by
// renaming another one to its path, as Write does, is safe on Unix. Windows does not
// allow either while the file is open.
func OpenFile(path string) (*File, error) {
	prefix := printable.Text(path)
	osFile, info, err := openFile(path, atomicfile.CheckRegular)
	if err != nil {
		return nil, inContext(prefix, err)
	}
	defer osFile.Close() // a mapping outlives its descriptor
	return openMapped(osFile, info.Size(), prefix)
}

// openMapped is OpenFile for a file of that size which is open already.
func openMapped(osFile *os.File, size int64, prefix string) (*File, error) {
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
		unmap() // its error would hide err
		return nil, err
	}
	return f, nil
}

// Parse reads a file that is already in memory. Slices that come from the File
// alias data. Errors begin with "rollout".
func Parse(data []byte) (*File, error) {
	f := &File{prefix: "rollout", data: data, unmap: func() error { return nil }}
	if err := f.parse(); err != nil {
		return nil, err
	}
	return f, nil
}

// parse reads the header. Its error begins with the prefix.
func (f *File) parse() error {
	return f.Guard(func() error { return inContext(f.prefix, f.parseData()) })
}

// Close unmaps the file; every slice that came from it is then invalid.
// Calls after the first do nothing.
func (f *File) Close() error {
	if f.closed {
		return nil
	}
	f.closed = true
	return inContext(f.prefix, f.unmap())
}

// Guard calls do, which reads slices of f, and returns its error. If a read
// faults because the file has become shorter since it was opened, or because its
// disk fails, Guard ends do and returns an error that says so. Any other panic,
// and any fault outside the file's memory, goes on to the caller.
//
// Guard works for the goroutine that calls it: a fault in a goroutine that do
// starts ends the program. So within do the Workers of a reweight.Workspace must be
// 1, unless the slices that its calls read are copies that do has made. After such
// an error, what do has written is incomplete, and a slice of f may fault again:
// the only call that f then takes is Close. A Workspace that do has used can be used
// again.
func (f *File) Guard(do func() error) (err error) { return guard([]*File{f}, do) }

// guard is Guard for slices of several files.
func guard(files []*File, do func() error) (err error) {
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
		if ok {
			for _, f := range files {
				if !f.closed && within(f.data, fault.Addr()) {
					err = fmt.Errorf("%s: its memory cannot be used: the file became shorter while it was open, its disk fails, or a slice of it was written to", f.prefix)
					return
				}
			}
		}
		panic(p)
	}()
	return do()
}

// within reports whether the address is one of the bytes of data. Some systems
// round the address of a fault down to the begin of its page; a mapping begins at
// one too, so the rounded address is within it as well.
func within(data []byte, address uintptr) bool {
	return address-uintptr(unsafe.Pointer(unsafe.SliceData(data))) < uintptr(len(data))
}

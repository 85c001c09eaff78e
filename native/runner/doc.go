// Package runner calls the C library from Go, on slices in this process's memory, for
// tests that compare the two. It loads the shared library and needs cgo; without it,
// Open returns an error.
package runner

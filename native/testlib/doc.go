// Package testlib gives tests the C library, made from the sources of this tree, and calls
// it on slices in this process's memory. It needs cgo and Linux. These make the library
// with the sanitizers of addresses and of undefined behaviour:
//
//	go test -asan -short ./native/testlib
//	go test -asan -short ./kernels -gpu none -run 'Bits|Guard|Random|Half|Fuzz|Native'
package testlib

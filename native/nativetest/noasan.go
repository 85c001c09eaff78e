//go:build !asan

package nativetest

const sanitizers = ""

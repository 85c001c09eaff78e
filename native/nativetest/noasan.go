//go:build !asan

package nativetest

// Sanitized says whether this program and the library have sanitizers.
const Sanitized = false

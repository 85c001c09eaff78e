//go:build asan

package testlib

// Sanitized says whether this program and the library have sanitizers.
const Sanitized = true

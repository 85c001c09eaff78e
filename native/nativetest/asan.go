//go:build asan

package nativetest

// sanitizers are those that the library is made with. Those of this program are those of
// go test -asan, which puts the rest of what they need into it.
const sanitizers = "address,undefined"

//go:build !cgo || !linux

package native

import "reflect"

// Structs returns nothing in this build.
func Structs() []reflect.Type { return nil }

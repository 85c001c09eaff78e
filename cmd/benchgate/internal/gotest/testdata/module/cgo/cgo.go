// Package cgo prints from C.
package cgo

// #include <stdio.h>
// static int twice(int n) { printf("no end of line"); fflush(stdout); return 2 * n; }
import "C"

func Twice(n int) int { return int(C.twice(C.int(n))) }

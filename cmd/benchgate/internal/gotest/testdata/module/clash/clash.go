// Package other has names that a generated file might want to use, and is not in a
// directory of its name.
package other

const true, nil = false, 0

var testing, worker, flag, os, json, init_ = 1, 2, 3, 4, 5, 6

type (
	string int
	any    int
	bool   int
)

func append() {}

//go:build !(amd64 || arm64) || noasm || purego

package bench

func plainRead(x []uint64) uint64 { return sum(x) }

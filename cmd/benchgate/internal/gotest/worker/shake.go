package worker

var shaken [][]byte

// Shake allocates memory of random sizes, about 200 KiB in all, and keeps it. Where
// the heap puts what comes later is luck that a process keeps as long as it lives,
// and it can make the same code some percent slower. With another seed a process
// has another luck.
func Shake(seed uint64) {
	next := func(n int) int { // splitmix64, because math/rand is the user's
		seed += 0x9e3779b97f4a7c15
		z := seed
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return int((z ^ z>>31) % uint64(n))
	}
	for size := 16; size <= 1<<15; size *= 2 {
		most := 32
		if size > 1<<10 { // the more there is to keep, the less often garbage is collected
			most = 8
		}
		for n := next(most); n > 0; n-- {
			shaken = append(shaken, make([]byte, size-next(size/2)))
		}
	}
}

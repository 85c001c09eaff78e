package bench

// Counts are what the CPU's own counters say.
type Counts struct{ Cycles, Instructions uint64 }

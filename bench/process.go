package bench

// PeakMemory returns the most memory that the process has had in RAM so far, in
// bytes, and false where the system does not tell.
func PeakMemory() (int64, bool) { return peakMemory() }

// Pin keeps the process on CPU number cpu (the first is 0): all its threads, and
// those that they will start. Workers then take turns on that CPU, and Go's garbage
// collector and the goroutine that takes the time share it. Other processes may
// still use it too. Pin works on Linux; elsewhere it is an error.
func Pin(cpu int) error { return pin(cpu) }
